// Softmax cross-entropy by row, with its gradient in the same pass over a tile of logits that is
// still in cache. Optional z-loss (PaLM, Chowdhery et al., 2022, section 5): z * lse^2.

#include <cmath>
#include <limits>

#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {
namespace {

float RowMax(const float* x, int64_t n) {
  Vec max = Set(-std::numeric_limits<float>::infinity());
  float rest = -std::numeric_limits<float>::infinity();
  ForVectors(
      n, [&](int64_t i) { max = Max(max, Load(x + i)); },
      [&](int64_t i, int64_t k) {
        for (int64_t j = i; j < i + k; ++j) rest = x[j] > rest ? x[j] : rest;
      });
  const float lanes = MaxLanes(max);
  return lanes > rest ? lanes : rest;
}

float SumExp(const float* x, float max, int64_t n) {
  Vec sum{};
  float rest = 0;
  ForVectors(
      n, [&](int64_t i) { sum += Exp(Load(x + i) - max); },
      [&](int64_t i, int64_t k) {
        const Vec e = Exp(LoadPartial(x + i, k) - max);
        for (int64_t j = 0; j < k; ++j) rest += e[j];
      });
  return SumLanes(sum) + rest;
}

// dlogits = scale * softmax(x), written over x where they are the same memory.
template <typename D>
void ScaledSoftmax(const float* x, float lse, float scale, D* dlogits, int64_t n) {
  ForVectors(
      n, [&](int64_t i) { Store(dlogits + i, Exp(Load(x + i) - lse) * scale); },
      [&](int64_t i, int64_t k) {
        StorePartial(dlogits + i, Exp(LoadPartial(x + i, k) - lse) * scale, k);
      });
}

}  // namespace

void CrossEntropy(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  const int64_t vocab = args.logits.dim(1);
  for (int64_t row = begin; row < end; ++row) {
    const float* logits = args.logits.f32() + row * vocab;
    const int64_t target = args.targets.i32()[row];
    const bool counts = target >= 0;
    float lse = 0;
    float at_target = 0;
    if (counts) {
      const float max = RowMax(logits, vocab);
      lse = max + std::log(SumExp(logits, max, vocab));
      at_target = logits[target];
    }
    args.losses.f32()[row] = counts ? lse - at_target : 0.0f;
    if (!args.dlogits.defined()) continue;
    WithType(args.dlogits, [&](auto* all) {
      auto* dlogits = all + row * vocab;
      if (!counts) {
        for (int64_t i = 0; i < vocab; ++i) StoreOne(dlogits + i, 0.0f);
        return;
      }
      // d/dlogit_i = p_i (1 + 2 z lse) - [i = target].
      const float p_scale = args.grad_scale * (1.0f + 2.0f * args.z_loss * lse);
      const float p_target = std::exp(at_target - lse);
      ScaledSoftmax(logits, lse, p_scale, dlogits, vocab);
      StoreOne(dlogits + target, p_scale * p_target - args.grad_scale);
    });
  }
}

}  // namespace cria::model::cpu::CRIA_ISA
