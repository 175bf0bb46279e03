#include "tests/unit/model/cpu/vec_probe.h"

#include "model/cpu/vec.h"

namespace cria::model::cpu::CRIA_ISA {

const VecProbe& Probe() {
  static constexpr VecProbe kProbe = {
      .lanes = kLanes,
      .exp = [](const float* x, float* y) { Store(y, Exp(Load(x))); },
      .sigmoid = [](const float* x, float* y) { Store(y, Sigmoid(Load(x))); },
      .to_bf16 = [](const float* x, BF16* y) { Store(y, Load(x)); },
      .from_bf16 = [](const BF16* x, float* y) { Store(y, Load(x)); },
      .to_bf16_one = [](const float* x, BF16* y) { StoreOne(y, *x); },
      .sum_lanes = [](const float* x) { return SumLanes(Load(x)); },
      .max_lanes = [](const float* x) { return MaxLanes(Load(x)); },
  };
  return kProbe;
}

}  // namespace cria::model::cpu::CRIA_ISA
