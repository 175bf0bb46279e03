// A clock that runs while this process computes: it stands still while others have the cores.
//
// For profiles with one thread on a machine that is busy; with more threads it counts what each
// spends, waiting included. Thread-safe.

#ifndef CRIA_TRAINER_BENCH_CPU_CLOCK_H_
#define CRIA_TRAINER_BENCH_CPU_CLOCK_H_

#include <ctime>

#include "base/clock.h"

namespace cria::trainer {

class CpuClock final : public Clock {
 public:
  // Seconds of all threads of the process.
  double MonotonicSeconds() override {
    timespec time = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double UnixSeconds() override { return RealClock()->UnixSeconds(); }
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_CPU_CLOCK_H_
