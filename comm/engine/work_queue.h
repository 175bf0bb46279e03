// Runs a communicator's asynchronous operations, one after another, on one thread that starts with
// the first of them.
//
//   Work work = queue.Push(sequence, [this] { return Run(...); });
//
// Push from one thread at a time. The destructor waits until everything that was pushed is over
// (operations have deadlines). Cost of an idle queue: one load in `idle`.

#ifndef CRIA_COMM_ENGINE_WORK_QUEUE_H_
#define CRIA_COMM_ENGINE_WORK_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/api/work.h"
#include "debug/observer.h"

namespace cria::comm {

class WorkQueue {
 public:
  // `observer` (null: none) hears when somebody waits for an operation of the group.
  explicit WorkQueue(debug::Observer* observer = nullptr, uint64_t group_id = 0)
      : observer_(observer), group_id_(group_id) {}
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // True when nothing is pending: the caller may run an operation itself, and sees what the
  // finished ones wrote.
  bool idle() const { return num_pending_.load(std::memory_order_acquire) == 0; }
  Work Push(uint64_t sequence, std::function<Status()> run) CRIA_EXCLUDES(mu_);

 private:
  struct Item {
    std::function<Status()> run;
    std::shared_ptr<WorkState> state;
  };
  void Loop() CRIA_EXCLUDES(mu_);

  debug::Observer* const observer_;
  const uint64_t group_id_;
  std::atomic<int64_t> num_pending_{0};
  Mutex mu_;
  CondVar changed_;
  std::deque<Item> items_ CRIA_GUARDED_BY(mu_);
  bool stopping_ CRIA_GUARDED_BY(mu_) = false;
  std::thread thread_;  // of the thread that pushes
};

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_WORK_QUEUE_H_
