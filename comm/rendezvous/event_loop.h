// One thread, many sockets and timers: epoll with handlers. A rank of a real job and thousands of
// virtual ranks of the benchmark run on it alike.
//
//   CRIA_ASSIGN_OR_RETURN(auto loop, EventLoop::Create());
//   CRIA_ASSIGN_OR_RETURN(const auto watch, loop->Watch(fd, EPOLLIN, this));
//   while (!done) CRIA_RETURN_IF_ERROR(loop->RunOnce(deadline_s));
//
// Handlers are called on the thread that calls RunOnce. They may watch, unwatch and start timers
// there; what they want to destroy while it may be calling them goes to DestroyLater.
// Thread-compatible. Descriptors stay the caller's; Unwatch comes before close.

#ifndef CRIA_COMM_RENDEZVOUS_EVENT_LOOP_H_
#define CRIA_COMM_RENDEZVOUS_EVENT_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/net/fd.h"

namespace cria::comm {

class EventHandler {
 public:
  virtual ~EventHandler() = default;
  // `events` as epoll gives them: EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP.
  virtual void OnEvents(uint32_t events) = 0;
};

class EventLoop {
 public:
  // A watched descriptor; the zero value watches nothing.
  struct WatchId {
    uint32_t slot_plus_1 = 0;
    uint32_t generation = 0;
  };
  // A timer that was started; the zero value is none.
  using TimerId = std::pair<double, uint64_t>;

  static StatusOr<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();

  StatusOr<WatchId> Watch(int fd, uint32_t events, EventHandler* handler);
  void Change(WatchId watch, int fd, uint32_t events);
  // No call of the handler after the return. Unwatching nothing is fine.
  void Unwatch(WatchId watch, int fd);

  // Calls `call` once, when now_s() >= when_s.
  TimerId StartTimer(double when_s, std::function<void()> call);
  void CancelTimer(TimerId timer) { timers_.erase(timer); }

  // Destroyed when no handler is being called.
  void DestroyLater(std::unique_ptr<EventHandler> handler) {
    doomed_.push_back(std::move(handler));
  }

  // Waits for events or timers, at most until `until_s`, and calls their handlers.
  Status RunOnce(double until_s);

  // RealClock's monotonic time, as of the last wait or timer.
  double now_s() const { return now_s_; }
  // Room to read into, for the duration of one handler's call.
  std::span<char> scratch() { return scratch_; }

 private:
  struct Slot {
    EventHandler* handler = nullptr;
    uint32_t generation = 0;
  };

  EventLoop() : scratch_(kScratchBytes) {}
  void RunTimers();

  static constexpr size_t kScratchBytes = size_t{512} << 10;

  Fd epoll_;
  double now_s_ = 0;
  uint64_t last_timer_ = 0;
  std::map<TimerId, std::function<void()>> timers_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<std::unique_ptr<EventHandler>> doomed_;
  std::vector<char> scratch_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_EVENT_LOOP_H_
