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

// The sum of an item: four streams, as the prefetchers like them, and enough independent sums that
// an addition's latency is not what is measured.
float Sum(const float* x) {
  typedef float Vec __attribute__((vector_size(16)));
  constexpr int64_t kStreams = 4, kFloatsPerStream = kFloatsPerItem / kStreams;
  Vec sums[kStreams][2] = {};
  for (int64_t i = 0; i < kFloatsPerStream; i += 8) {
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      Vec v[2];
      std::memcpy(v, x + stream * kFloatsPerStream + i, sizeof(v));
      sums[stream][0] += v[0];
      sums[stream][1] += v[1];
    }
  }
  float total = 0;
  for (const auto& pair : sums) total += (pair[0] + pair[1])[0];
  return total;
}

}  // namespace

MemoryBaseline::MemoryBaseline(Clock* clock)
    : clock_(clock), a_(kFloats, 1), b_(kFloats, 2), c_(kFloats, 3) {}

MemoryRates MemoryBaseline::Run(int num_threads) {
  const int before = NumThreads();
  SetNumThreads(num_threads);
  // A bound for others: the best of a few passes.
  double read_s = 0;
  for (int pass = 0; pass < 4; ++pass) {
    const double seconds = Seconds(clock_, [&](int64_t begin) { c_[begin] += Sum(&b_[begin]); });
    if (pass == 0 || seconds < read_s) read_s = seconds;
  }
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
  return {.read = kGigabytes / read_s,
          .copy = 2 * kGigabytes / copy_s,
          .triad = 3 * kGigabytes / triad_s};
}

}  // namespace cria::trainer
