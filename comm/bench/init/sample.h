// One start of a job, measured, and the fit of a curve of them. Thread-safe: values.

#ifndef CRIA_COMM_BENCH_INIT_SAMPLE_H_
#define CRIA_COMM_BENCH_INIT_SAMPLE_H_

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace cria::comm {

struct InitSample {
  double seconds = 0;      // from the first rank's first step to the last rank's last
  double map_seconds = 0;  // to the last rank that has the map; 0 where there is no such moment
  double cpu_seconds = 0;  // of all processes until then, the kernel's included; 0: not counted
  int rounds = 0;          // messages one after another on the longest way; 0: not counted
  int64_t connections = 0;
  int64_t messages = 0;
  int64_t bytes = 0;
  int64_t map_bytes = 0;      // the encoded map
  double decode_seconds = 0;  // of one map
  int processes = 0;          // that the ranks lived in
};

// The slope of log(seconds) over log(ranks), by least squares: 1 is linear. 0 for fewer than two
// points.
inline double FitExponent(const std::vector<std::pair<double, double>>& ranks_and_seconds) {
  const auto n = static_cast<double>(ranks_and_seconds.size());
  double x_sum = 0, y_sum = 0, xx_sum = 0, xy_sum = 0;
  for (const auto& [ranks, seconds] : ranks_and_seconds) {
    const double x = std::log(ranks);
    const double y = std::log(seconds);
    x_sum += x;
    y_sum += y;
    xx_sum += x * x;
    xy_sum += x * y;
  }
  const double spread = n * xx_sum - x_sum * x_sum;
  return spread > 0 ? (n * xy_sum - x_sum * y_sum) / spread : 0;
}

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_INIT_SAMPLE_H_
