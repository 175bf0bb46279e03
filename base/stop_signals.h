// StopSignals: SIGINT and SIGTERM for programs that compute, taken by a thread that does nothing
// else.
//
//   int main(int argc, char** argv) {
//     StopSignals signals;                       // before the first other thread
//     ...
//     signals.Take([](int signal_number) { if (stop.fetch_add(1) > 0) _exit(128 + signal_number);
//     });
//
// No handler ever interrupts a thread of the program. oneDNN's matrix kernels use the stack pointer
// as one more register, on AVX2 and on AVX-512: a handler's frame, 1 to 3 KiB, would be written
// over the matrices or the heap, unseen. A profiler that works by signals (SIGPROF) has the same
// effect.
//
// The signals are blocked in the constructor's thread and in all that it starts later; a program
// started from them must have its mask set (posix_spawnattr_setsigmask). Until Take, and after the
// destructor, a signal does what it did before: by default it ends the process.
// One object a process. Thread-safe.

#ifndef CRIA_BASE_STOP_SIGNALS_H_
#define CRIA_BASE_STOP_SIGNALS_H_

#include <csignal>
#include <functional>
#include <thread>

#include "base/mutex.h"

namespace cria {

class StopSignals {
 public:
  // Called with the signal's number, on the thread of the signals: it may do what any thread may.
  using Handler = std::function<void(int signal_number)>;

  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From here on each signal is the handler's, in the place of an earlier one.
  void Take(Handler handler);

 private:
  void Wait();
  void HandOver(int signal_number);

  sigset_t signals_ = {};
  sigset_t old_mask_ = {};
  Mutex mutex_;
  bool ending_ CRIA_GUARDED_BY(mutex_) = false;
  Handler handler_ CRIA_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace cria

#endif  // CRIA_BASE_STOP_SIGNALS_H_
