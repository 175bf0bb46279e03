// The one error of a communicator: the first reason wins, every wait polls it.
//
//   if (failure->failed()) return failure->status();     // in each wait loop
//   failure->Fail(ToStatus({.kind = CommErrorKind::kPeerLost, ...}));
//
// Transports add a listener that wakes their waiters and tells the peers ("poison").
// Thread-safe. Cost of failed(): one relaxed load.

#ifndef CRIA_COMM_ENGINE_FAILURE_H_
#define CRIA_COMM_ENGINE_FAILURE_H_

#include <atomic>
#include <functional>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace cria::comm {

class FailureState {
 public:
  using Listener = std::function<void(const Status&)>;

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // The first error; OK before there is one.
  Status status() const CRIA_EXCLUDES(mu_);
  // Keeps `error` if it is the first, and calls the listeners, on this thread, without a lock held.
  // Returns true when it was the first.
  bool Fail(const Status& error) CRIA_EXCLUDES(mu_);
  // Calls `listener` at the failure, at once when that was already. Returns an id for Remove.
  int AddListener(Listener listener) CRIA_EXCLUDES(mu_);
  // After the return the listener is not running and will not be called.
  void RemoveListener(int id) CRIA_EXCLUDES(mu_);

 private:
  std::atomic<bool> failed_{false};
  mutable Mutex mu_;
  CondVar changed_;
  Status status_ CRIA_GUARDED_BY(mu_);
  std::vector<Listener> listeners_ CRIA_GUARDED_BY(mu_);
  int running_ CRIA_GUARDED_BY(mu_) = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_FAILURE_H_
