#include "comm/api/work.h"

#include <chrono>

namespace cria::comm {

void WorkState::Finish(Status status) {
  MutexLock lock(&mu_);
  status_ = std::move(status);
  done_ = true;
  changed_.NotifyAll();
}

bool WorkState::done() {
  MutexLock lock(&mu_);
  return done_;
}

Status WorkState::Wait(double seconds) {
  if (observer_ == nullptr || done()) return WaitUntilDone(seconds);
  observer_->OnWaitStart(group_id_);
  Status status = WaitUntilDone(seconds);
  observer_->OnWaitEnd(group_id_);
  return status;
}

Status WorkState::WaitUntilDone(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  MutexLock lock(&mu_);
  while (!done_) {
    const std::chrono::duration<double> left = end - std::chrono::steady_clock::now();
    if (left.count() <= 0) return DeadlineExceededError("not done after ", seconds, " s");
    changed_.WaitFor(&mu_, left.count());
  }
  return status_;
}

Status Work::Wait() const {
  if (state_ == nullptr) return status_;
  // The operation's own deadline ends it; slices, since no wait is without an end.
  constexpr double kSliceSeconds = 3600;
  while (!state_->done()) state_->Wait(kSliceSeconds).IgnoreError();
  return state_->Wait(kSliceSeconds);
}

}  // namespace cria::comm
