#include "comm/rendezvous/event_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"
#include "comm/net/socket.h"

namespace cria::comm {
namespace {

constexpr int kEventsAtOnce = 256;

uint64_t Pack(EventLoop::WatchId watch) {
  return (static_cast<uint64_t>(watch.generation) << 32) | watch.slot_plus_1;
}

}  // namespace

StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  std::unique_ptr<EventLoop> loop(new EventLoop());
  loop->epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!loop->epoll_.valid()) return SocketError(errno, "epoll_create1");
  loop->now_s_ = RealClock()->MonotonicSeconds();
  return loop;
}

EventLoop::~EventLoop() = default;

StatusOr<EventLoop::WatchId> EventLoop::Watch(int fd, uint32_t events, EventHandler* handler) {
  if (free_slots_.empty()) {
    free_slots_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint32_t slot = free_slots_.back();
  const WatchId watch = {.slot_plus_1 = slot + 1, .generation = slots_[slot].generation};
  epoll_event event = {};
  event.events = events;
  event.data.u64 = Pack(watch);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return SocketError(errno, "epoll_ctl");
  }
  free_slots_.pop_back();
  slots_[slot].handler = handler;
  return watch;
}

void EventLoop::Change(WatchId watch, int fd, uint32_t events) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = Pack(watch);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::Unwatch(WatchId watch, int fd) {
  if (watch.slot_plus_1 == 0) return;
  Slot& slot = slots_[watch.slot_plus_1 - 1];
  if (slot.generation != watch.generation) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  slot.handler = nullptr;
  ++slot.generation;
  free_slots_.push_back(watch.slot_plus_1 - 1);
}

EventLoop::TimerId EventLoop::StartTimer(double when_s, std::function<void()> call) {
  const TimerId timer = {when_s, ++last_timer_};
  timers_.emplace(timer, std::move(call));
  return timer;
}

void EventLoop::RunTimers() {
  while (!timers_.empty() && timers_.begin()->first.first <= now_s_) {
    const auto entry = timers_.extract(timers_.begin());
    entry.mapped()();
  }
}

Status EventLoop::RunOnce(double until_s) {
  const double wake_s = timers_.empty() ? until_s : std::min(until_s, timers_.begin()->first.first);
  std::array<epoll_event, kEventsAtOnce> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, PollMilliseconds(wake_s));
  if (count < 0 && errno != EINTR) return SocketError(errno, "epoll_wait");
  now_s_ = RealClock()->MonotonicSeconds();
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const Slot& slot = slots_[(event.data.u64 & 0xffffffff) - 1];
    // A handler that was unwatched by an earlier event of this batch is gone.
    if (slot.handler == nullptr || slot.generation != event.data.u64 >> 32) continue;
    slot.handler->OnEvents(event.events);
  }
  RunTimers();
  doomed_.clear();
  return OkStatus();
}

}  // namespace cria::comm
