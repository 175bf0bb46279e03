// AdamW (Loshchilov & Hutter, 2019) over fp32 state. Bound by memory: 4 reads and 3 writes an
// element.

#include <cmath>

#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {

void AdamW(const AdamWArgs& args, int64_t begin, int64_t end) {
  float* weight = args.weight.f32();
  const float* grad = args.grad.f32();
  float* m = args.m.f32();
  float* v = args.v.f32();
  // The corrections in double, by powers of the betas in use, so that a resumed run has the same.
  const double step = static_cast<double>(args.step);
  const float m_correction =
      static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(args.beta1), step)));
  const float v_correction =
      static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(args.beta2), step)));
  const float keep = 1.0f - args.lr * args.weight_decay;
  for (int64_t i = begin; i < end; ++i) {
    const float g = grad[i] * args.grad_scale;
    m[i] = args.beta1 * m[i] + (1.0f - args.beta1) * g;
    v[i] = args.beta2 * v[i] + (1.0f - args.beta2) * g * g;
    const float denominator = std::sqrt(v[i] * v_correction) + args.eps;
    weight[i] = keep * weight[i] - args.lr * (m[i] * m_correction / denominator);
  }
}

}  // namespace cria::model::cpu::CRIA_ISA
