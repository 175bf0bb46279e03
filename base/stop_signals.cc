#include "base/stop_signals.h"

#include <pthread.h>

#include <utility>

#include "base/check.h"

namespace cria {

StopSignals::StopSignals() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  CRIA_CHECK(pthread_sigmask(SIG_BLOCK, &signals_, &old_mask_) == 0);
  thread_ = std::thread([this] { Wait(); });
}

StopSignals::~StopSignals() {
  {
    const MutexLock lock(&mutex_);
    ending_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

void StopSignals::Take(Handler handler) {
  const MutexLock lock(&mutex_);
  handler_ = std::move(handler);
}

void StopSignals::Wait() {
  for (;;) {
    int signal_number = 0;
    if (sigwait(&signals_, &signal_number) != 0) continue;
    {
      const MutexLock lock(&mutex_);
      if (ending_) return;
    }
    HandOver(signal_number);
  }
}

void StopSignals::HandOver(int signal_number) {
  Handler handler;
  {
    const MutexLock lock(&mutex_);
    handler = handler_;
  }
  if (handler) return handler(signal_number);
  // Nobody took it: what the system does with it, here and now.
  sigset_t old_mask;
  pthread_sigmask(SIG_UNBLOCK, &signals_, &old_mask);
  raise(signal_number);
  pthread_sigmask(SIG_SETMASK, &old_mask, nullptr);
}

}  // namespace cria
