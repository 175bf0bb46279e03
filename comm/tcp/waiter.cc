#include "comm/tcp/waiter.h"

#include <poll.h>

#include <algorithm>

#include "base/clock.h"
#include "comm/net/socket.h"

namespace cria::comm::tcp {
namespace {

// After this long without progress a rank asks the one that it waits for, sooner when the whole
// operation has less time.
constexpr double kAskAfterSeconds = 0.1;
constexpr double kSliceSeconds = 1.0;
// What a peer that says it waits for nobody gets beyond the deadline, to find out for whom it does.
constexpr double kGraceSeconds = 0.5;
constexpr double kGraceSliceSeconds = 0.05;

double Now() { return RealClock()->MonotonicSeconds(); }

}  // namespace

Waiter::Waiter(GroupState* state, DomainHooks* domain, double deadline_s, double timeout_s)
    : state_(state),
      domain_(domain),
      deadline_s_(deadline_s),
      timeout_s_(timeout_s),
      ask_after_s_(std::min(kAskAfterSeconds, timeout_s / 8)) {}

Waiter::~Waiter() { Progressed(); }

void Waiter::Progressed() {
  idle_since_s_ = 0;
  if (!told_) return;
  told_ = false;
  state_->SetWaiting(-1);
}

bool Waiter::Spin() {
  const double now_s = Now();
  if (idle_since_s_ == 0) idle_since_s_ = now_s;
  return now_s - idle_since_s_ < domain_->spin_s() && now_s < deadline_s_;
}

Status Waiter::Sleep(int waits_for_world, std::vector<pollfd>* entries, double retry_s) {
  double now_s = Now();
  if (idle_since_s_ == 0) idle_since_s_ = now_s;
  if (now_s - idle_since_s_ >= ask_after_s_) {
    told_ = true;
    if (state_->SetWaiting(waits_for_world)) domain_->Kick();
  }
  double slice_s = kSliceSeconds;
  if (now_s >= deadline_s_) {
    state_->SetWaiting(waits_for_world);
    const bool may_learn = now_s < deadline_s_ + std::min(kGraceSeconds, timeout_s_ / 4) &&
                           state_->Blame(now_s).state == PeerState::kBusy;
    if (!may_learn) return ToStatus(state_->TimeoutError(timeout_s_, now_s));
    slice_s = kGraceSliceSeconds;
  }
  double wake_s = std::min(retry_s, now_s + slice_s);
  if (now_s < deadline_s_) wake_s = std::min(wake_s, deadline_s_);
  if (!told_) wake_s = std::min(wake_s, idle_since_s_ + ask_after_s_);
  entries->push_back({.fd = state_->wake_fd(), .events = POLLIN, .revents = 0});
  const int ready = poll(entries->data(), entries->size(), PollMilliseconds(wake_s));
  if (ready > 0 && entries->back().revents != 0) state_->DrainWake();
  return OkStatus();
}

}  // namespace cria::comm::tcp
