#include "trainer/bench/memory_baseline.h"

#include <cstdint>
#include <cstring>

#include "base/parallel.h"

namespace cria::trainer {
namespace {

constexpr int64_t kFloats = 16 << 20;  // 64 MiB an array
constexpr int64_t kFloatsPerItem = 1 << 20;

template <typename Body>
double Seconds(Clock* clock, const Body& body) {
  const double start = clock->MonotonicSeconds();
  ParallelFor(kFloats / kFloatsPerItem, [&](int64_t item) { body(item * kFloatsPerItem); });
  return clock->MonotonicSeconds() - start;
}

}  // namespace

MemoryBaseline::MemoryBaseline(Clock* clock)
    : clock_(clock), a_(kFloats, 1), b_(kFloats, 2), c_(kFloats, 3) {}

MemoryRates MemoryBaseline::Run(int num_threads) {
  const int before = NumThreads();
  SetNumThreads(num_threads);
  const double copy_s = Seconds(clock_, [&](int64_t begin) {
    std::memcpy(a_.data() + begin, b_.data() + begin, kFloatsPerItem * sizeof(float));
  });
  const double triad_s = Seconds(clock_, [&](int64_t begin) {
    float* const a = a_.data();
    const float* const b = b_.data();
    const float* const c = c_.data();
    for (int64_t i = begin; i < begin + kFloatsPerItem; ++i) a[i] = b[i] + 0.5f * c[i];
  });
  SetNumThreads(before);
  constexpr double kGigabytes = kFloats * sizeof(float) * 1e-9;
  return {.copy = 2 * kGigabytes / copy_s, .triad = 3 * kGigabytes / triad_s};
}

}  // namespace cria::trainer
