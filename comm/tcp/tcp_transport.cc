#include "comm/tcp/tcp_transport.h"

#include <utility>

#include "comm/tcp/domain.h"

namespace cria::comm::tcp {

TcpTransport::TcpTransport(Domain* domain, std::shared_ptr<GroupState> state)
    : domain_(domain),
      state_(std::move(state)),
      links_(state_.get(), [this](int peer) { return domain_->LinkTo(*state_, peer); }),
      runner_(state_.get(), &links_, domain),
      exchanger_(state_.get(), &links_, domain) {
  listener_ = state_->failure()->AddListener([this](const Status& status) {
    domain_->QueuePoison(state_, status);
    state_->Wake();
  });
}

TcpTransport::~TcpTransport() {
  domain_->CloseGroup(state_->info().id);
  state_->failure()->RemoveListener(listener_);
}

Status TcpTransport::Run(const OperationContext& context, std::span<const Round> rounds) {
  if (state_->failure()->failed()) return state_->failure()->status();
  state_->Begin(context.signature, context.timeout_s, /*transfers=*/false);
  context.Step("enter");
  return End(context, runner_.Run(context, rounds));
}

Status TcpTransport::Exchange(const OperationContext& context, std::span<const Transfer> sends,
                              std::span<const Transfer> recvs) {
  if (state_->failure()->failed()) return state_->failure()->status();
  state_->Begin(context.signature, context.timeout_s, /*transfers=*/true);
  context.Step("enter");
  return End(context, exchanger_.Run(context, sends, recvs));
}

Status TcpTransport::End(const OperationContext& context, const Status& status) {
  if (!status.ok()) state_->failure()->Fail(status);
  state_->End();
  context.Step("leave");
  return status.ok() ? status : state_->failure()->status();
}

}  // namespace cria::comm::tcp
