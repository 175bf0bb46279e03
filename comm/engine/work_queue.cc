#include "comm/engine/work_queue.h"

#include <utility>

namespace cria::comm {

WorkQueue::~WorkQueue() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

Work WorkQueue::Push(uint64_t sequence, std::function<Status()> run) {
  auto state = std::make_shared<WorkState>(observer_, group_id_);
  num_pending_.fetch_add(1, std::memory_order_relaxed);
  {
    MutexLock lock(&mu_);
    items_.push_back({std::move(run), state});
    changed_.NotifyAll();
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  return Work(sequence, std::move(state));
}

void WorkQueue::Loop() {
  constexpr double kSliceSeconds = 3600;
  while (true) {
    Item item;
    {
      MutexLock lock(&mu_);
      while (items_.empty() && !stopping_) changed_.WaitFor(&mu_, kSliceSeconds);
      if (items_.empty()) return;
      item = std::move(items_.front());
      items_.pop_front();
    }
    Status status = item.run();
    num_pending_.fetch_sub(1, std::memory_order_release);
    item.state->Finish(std::move(status));
  }
}

}  // namespace cria::comm
