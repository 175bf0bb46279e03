// The handle of one operation.
//
//   Work work = comm->AllReduce({.input = g, .output = g, .count = n, .call = {.async = true}});
//   ...                                     // compute meanwhile; leave g alone
//   CRIA_RETURN_IF_ERROR(work.Wait());
//
// Every operation has its own deadline (CallOptions), so Wait() always returns. A Work may be
// copied, waited for more than once and dropped: the operation goes on without it.
// Thread-safe, all of it. Cost: a finished operation allocates nothing.

#ifndef CRIA_COMM_API_WORK_H_
#define CRIA_COMM_API_WORK_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "debug/observer.h"

namespace cria::comm {

// The shared part of an operation that still runs. The backend finishes it, once.
class WorkState {
 public:
  // `observer` (null: none) hears when somebody waits for this operation of the group.
  explicit WorkState(debug::Observer* observer = nullptr, uint64_t group_id = 0)
      : observer_(observer), group_id_(group_id) {}

  void Finish(Status status) CRIA_EXCLUDES(mu_);
  bool done() CRIA_EXCLUDES(mu_);
  // The outcome; waits for it up to `seconds`, then DeadlineExceeded (the operation goes on).
  Status Wait(double seconds) CRIA_EXCLUDES(mu_);

 private:
  Status WaitUntilDone(double seconds) CRIA_EXCLUDES(mu_);

  debug::Observer* const observer_;
  const uint64_t group_id_;
  Mutex mu_;
  CondVar changed_;
  bool done_ CRIA_GUARDED_BY(mu_) = false;
  Status status_ CRIA_GUARDED_BY(mu_);
};

class Work {
 public:
  // Done, with success.
  Work() = default;
  // Done, with this outcome.
  Work(uint64_t sequence, Status status) : sequence_(sequence), status_(std::move(status)) {}
  // Still runs.
  Work(uint64_t sequence, std::shared_ptr<WorkState> state)
      : sequence_(sequence), state_(std::move(state)) {}

  // The outcome, after the operation ended by itself, by its deadline or by an abort.
  Status Wait() const;
  // The outcome if it is there within `seconds`; else DeadlineExceeded, and the operation goes on.
  Status WaitFor(double seconds) const { return state_ ? state_->Wait(seconds) : status_; }
  bool done() const { return state_ == nullptr || state_->done(); }
  // The operation's number in its group, from 1; 0 when the call was refused before it got one.
  uint64_t sequence() const { return sequence_; }

 private:
  uint64_t sequence_ = 0;
  Status status_;
  std::shared_ptr<WorkState> state_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_API_WORK_H_
