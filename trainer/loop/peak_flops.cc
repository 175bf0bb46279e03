#include "trainer/loop/peak_flops.h"

#include <algorithm>

#include "model/arena.h"

namespace cria::trainer {

double MeasurePeakFlops(model::Ops* ops, model::DType type, Clock* clock) {
  constexpr int64_t kSize = 768;  // operands stay in the last-level cache
  constexpr double kSeconds = 0.3;
  model::Arena plan = model::Arena::Planning();
  for (int i = 0; i < 3; ++i) plan.Alloc(model::DType::kF32, {kSize, kSize});
  model::Arena arena(plan.used_bytes());
  const model::Tensor a = arena.Alloc(type, {kSize, kSize});
  const model::Tensor b = arena.Alloc(type, {kSize, kSize});
  const model::Tensor c = arena.Alloc(model::DType::kF32, {kSize, kSize});
  ops->Zero(a);
  ops->Zero(b);
  double best = 0;
  const double start = clock->MonotonicSeconds();
  double now = start;
  for (int run = 0; run < 4 || now - start < kSeconds; ++run) {
    ops->Matmul({.a = a, .b = b, .c = c, .transpose_b = true});
    const double after = clock->MonotonicSeconds();
    best = std::max(best, 2.0 * kSize * kSize * kSize / std::max(after - now, 1e-9));
    now = after;
  }
  return best;
}

}  // namespace cria::trainer
