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

// Sum of e^(x - max); the terms go to `terms`, which may be x, where that is given.
float SumExp(const float* x, float max, float* terms, int64_t n) {
  Vec sum{};
  float rest = 0;
  ForVectors(
      n,
      [&](int64_t i) {
        const Vec e = Exp(Load(x + i) - max);
        if (terms != nullptr) Store(terms + i, e);
        sum += e;
      },
      [&](int64_t i, int64_t k) {
        const Vec e = Exp(LoadPartial(x + i, k) - max);
        if (terms != nullptr) StorePartial(terms + i, e, k);
        for (int64_t j = 0; j < k; ++j) rest += e[j];
      });
  return SumLanes(sum) + rest;
}

void ScaleAll(float* x, float scale, int64_t n) {
  ForVectors(
      n, [&](int64_t i) { Store(x + i, Load(x + i) * scale); },
      [&](int64_t i, int64_t k) { StorePartial(x + i, LoadPartial(x + i, k) * scale, k); });
}

// to = scale * softmax(x); `to` may be x.
template <typename T>
void ScaledSoftmax(const float* x, float lse, float scale, T* to, int64_t n) {
  ForVectors(
      n, [&](int64_t i) { Store(to + i, Exp(Load(x + i) - lse) * scale); },
      [&](int64_t i, int64_t k) {
        StorePartial(to + i, Exp(LoadPartial(x + i, k) - lse) * scale, k);
      });
}

// d/dlogit_i = p_i (1 + 2 z lse) - [i = target], times grad_scale: the factor of p_i, and the
// target's derivative.
float ProbabilityFactor(float grad_scale, float z_loss, float lse) {
  return grad_scale * (1.0f + 2.0f * z_loss * lse);
}
float TargetGradient(float p_factor, float at_target, float lse, float grad_scale) {
  return p_factor * std::exp(at_target - lse) - grad_scale;
}

}  // namespace

void CrossEntropy(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  const int64_t vocab = args.logits.dim(1);
  const bool has_gradient = args.dlogits.defined();
  const bool is_f32 = has_gradient && args.dlogits.dtype() == DType::kF32;
  for (int64_t row = begin; row < end; ++row) {
    const float* logits = args.logits.f32() + row * vocab;
    const int64_t target = args.targets.i32()[row];
    if (target < 0) {
      args.losses.f32()[row] = 0.0f;
      if (!has_gradient) continue;
      WithType(args.dlogits, [&](auto* all) {
        for (int64_t i = 0; i < vocab; ++i) StoreOne(all + row * vocab + i, 0.0f);
      });
      continue;
    }
    // In fp32 the gradient's place, which may be the logits', keeps the exponentials.
    float* terms = is_f32 ? args.dlogits.f32() + row * vocab : nullptr;
    const float at_target = logits[target];
    const float max = RowMax(logits, vocab);
    const float sum = SumExp(logits, max, terms, vocab);
    const float lse = max + std::log(sum);
    args.losses.f32()[row] = lse - at_target;
    if (!has_gradient) continue;
    const float p_scale = ProbabilityFactor(args.grad_scale, args.z_loss, lse);
    const float d_target = TargetGradient(p_scale, at_target, lse, args.grad_scale);
    if (is_f32) {
      ScaleAll(terms, p_scale / sum, vocab);
      terms[target] = d_target;
    } else {
      BF16* dlogits = args.dlogits.bf16() + row * vocab;
      ScaledSoftmax(logits, lse, p_scale, dlogits, vocab);
      StoreOne(dlogits + target, d_target);
    }
  }
}

void LogitStats(const LogitStatsArgs& args, int64_t begin, int64_t end) {
  const int64_t vocab = args.logits.dim(1);
  for (int64_t row = begin; row < end; ++row) {
    const float* logits = args.logits.f32() + row * args.logits.stride(0);
    const int64_t target = args.targets.i32()[row] - args.first_class;
    const float max = RowMax(logits, vocab);
    args.max.f32()[row] = max;
    args.sum.f32()[row] = SumExp(logits, max, nullptr, vocab);
    args.target_logit.f32()[row] = target >= 0 && target < vocab ? logits[target] : 0.0f;
  }
}

void LogitGradient(const LogitGradientArgs& args, int64_t begin, int64_t end) {
  const int64_t vocab = args.logits.dim(1);
  WithType(args.dlogits, [&](auto* all) {
    for (int64_t row = begin; row < end; ++row) {
      const float* logits = args.logits.f32() + row * vocab;
      auto* dlogits = all + row * vocab;
      if (args.targets.i32()[row] < 0) {
        for (int64_t i = 0; i < vocab; ++i) StoreOne(dlogits + i, 0.0f);
        continue;
      }
      const float lse = args.lse.f32()[row];
      const float p_scale = ProbabilityFactor(args.grad_scale, args.z_loss, lse);
      const int64_t target = args.targets.i32()[row] - args.first_class;
      const bool here = target >= 0 && target < vocab;
      const float d_target =
          here ? TargetGradient(p_scale, logits[target], lse, args.grad_scale) : 0.0f;
      ScaledSoftmax(logits, lse, p_scale, dlogits, vocab);
      if (here) StoreOne(dlogits + target, d_target);
    }
  });
}

}  // namespace cria::model::cpu::CRIA_ISA
