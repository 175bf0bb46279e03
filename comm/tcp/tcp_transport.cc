#include "comm/tcp/tcp_transport.h"

#include <poll.h>

#include <optional>
#include <utility>

#include "base/clock.h"
#include "comm/net/socket.h"
#include "comm/tcp/domain.h"

namespace cria::comm::tcp {
namespace {

// A peer whose connection ends may have failed for a reason of its own, of which news is on the
// way: whoever fails tells before it closes. Only without any it is the culprit itself.
constexpr double kNewsSeconds = 0.1;
constexpr double kTellSeconds = 0.1;
// A peer's thread replies as soon as it accepts; this long only where that peer starves.
constexpr double kSettleSeconds = 2;

}  // namespace

TcpTransport::TcpTransport(Domain* domain, std::shared_ptr<GroupState> state)
    : domain_(domain),
      state_(std::move(state)),
      links_(state_.get(), [this](int peer) { return domain_->LinkTo(*state_, peer); }),
      runner_(state_.get(), &links_, domain),
      exchanger_(state_.get(), &links_, domain) {
  listener_ = state_->failure()->AddListener([this](const Status& status) {
    // Worded here, while the operation that failed is still the running one.
    domain_->QueuePoison(state_, state_->ToPoison(status));
    state_->Wake();
  });
}

TcpTransport::~TcpTransport() {
  if (state_->failure()->failed()) {
    // Also of an error that another transport found: peers hear of it before the connections end.
    domain_->WaitUntilTold(kTellSeconds);
  } else {
    links_.Settle(RealClock()->MonotonicSeconds() + kSettleSeconds);
  }
  state_->Close();
  state_->failure()->RemoveListener(listener_);
  // Last: who finds the group closed finds its news queued.
  domain_->CloseGroup(state_->info().id);
}

Status TcpTransport::Run(const OperationContext& context, std::span<const Round> rounds) {
  if (state_->failure()->failed()) return state_->failure()->status();
  state_->Begin(context.signature, context.timeout_s, /*transfers=*/false);
  context.Step("enter");
  return Finish(context, runner_.Run(context, rounds));
}

Status TcpTransport::Exchange(const OperationContext& context, std::span<const Transfer> sends,
                              std::span<const Transfer> recvs) {
  if (state_->failure()->failed()) return state_->failure()->status();
  state_->Begin(context.signature, context.timeout_s, /*transfers=*/true);
  context.Step("enter");
  return Finish(context, exchanger_.Run(context, sends, recvs));
}

Status TcpTransport::Finish(const OperationContext& context, const Status& status) {
  if (!status.ok()) {
    const std::optional<CommError> error = GetCommError(status);
    if (error.has_value() && error->kind == CommErrorKind::kPeerLost) WaitForNews();
    state_->failure()->Fail(status);
    domain_->WaitUntilTold(kTellSeconds);
  }
  state_->End();
  context.Step("leave");
  return status.ok() ? status : state_->failure()->status();
}

void TcpTransport::Begin(const OperationContext& context) {
  const bool transfers = context.plan == nullptr;
  state_->Begin(context.signature, context.timeout_s, transfers);
}

void TcpTransport::End() { state_->End(); }

void TcpTransport::SetWaiting(int rank) {
  if (state_->SetWaiting(rank < 0 ? -1 : state_->WorldOf(rank))) domain_->Kick();
}

CommError TcpTransport::Timeout(double timeout_s) {
  return state_->TimeoutError(timeout_s, RealClock()->MonotonicSeconds());
}

void TcpTransport::WaitForNews() {
  const double end_s = RealClock()->MonotonicSeconds() + kNewsSeconds;
  while (!state_->failure()->failed() && WaitFor(state_->wake_fd(), POLLIN, end_s)) {
    state_->DrainWake();
  }
}

}  // namespace cria::comm::tcp
