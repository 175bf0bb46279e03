// The machine's memory speed: the bound of operations that compute little.
//
//   MemoryBaseline baseline;
//   const MemoryRates rates = baseline.Run(/*num_threads=*/2);
//
// One pass over arrays that no cache holds. Single-threaded object; threads inside.

#ifndef CRIA_TRAINER_BENCH_MEMORY_BASELINE_H_
#define CRIA_TRAINER_BENCH_MEMORY_BASELINE_H_

#include <vector>

#include "base/clock.h"

namespace cria::trainer {

// GB/s, every byte read and every byte written counted once.
struct MemoryRates {
  double read = 0;   // a sum, the best of four
  double copy = 0;   // memcpy
  double triad = 0;  // a = b + s * c (McCalpin's STREAM)
};

class MemoryBaseline {
 public:
  // `clock` stays the caller's.
  explicit MemoryBaseline(Clock* clock = RealClock());

  // Uses `num_threads` threads and leaves NumThreads() as it was.
  MemoryRates Run(int num_threads);

 private:
  Clock* const clock_;
  std::vector<float> a_, b_, c_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_MEMORY_BASELINE_H_
