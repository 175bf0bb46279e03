#include "comm/engine/failure.h"

#include <utility>

namespace cria::comm {

Status FailureState::status() const {
  MutexLock lock(&mu_);
  return status_;
}

bool FailureState::Fail(const Status& error) {
  std::vector<Listener> listeners;
  {
    MutexLock lock(&mu_);
    if (!status_.ok()) return false;
    status_ = error;
    failed_.store(true, std::memory_order_release);
    listeners = listeners_;
    ++running_;
  }
  for (const Listener& listener : listeners) {
    if (listener) listener(error);
  }
  MutexLock lock(&mu_);
  --running_;
  changed_.NotifyAll();
  return true;
}

int FailureState::AddListener(Listener listener) {
  Status status;
  int id = 0;
  {
    MutexLock lock(&mu_);
    status = status_;
    id = static_cast<int>(listeners_.size());
    listeners_.push_back(listener);
  }
  if (!status.ok()) listener(status);
  return id;
}

void FailureState::RemoveListener(int id) {
  MutexLock lock(&mu_);
  listeners_[static_cast<size_t>(id)] = nullptr;
  while (running_ > 0) changed_.WaitFor(&mu_, 1.0);
}

}  // namespace cria::comm
