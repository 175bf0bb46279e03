// Softmax cross-entropy by row, with its gradient in the same pass over a tile of logits that is
// still in cache. Optional z-loss (PaLM, Chowdhery et al., 2022, section 5): z * lse^2.

#include <cmath>
#include <limits>
#include <type_traits>

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

// to = scale * softmax(x); `to` may be x.
template <typename T>
void ScaledSoftmax(const float* x, float lse, float scale, T* to, int64_t n) {
  ForVectors(
      n, [&](int64_t i) { Store(to + i, Exp(Load(x + i) - lse) * scale); },
      [&](int64_t i, int64_t k) {
        StorePartial(to + i, Exp(LoadPartial(x + i, k) - lse) * scale, k);
      });
}

// Where a row of logits [0, n) has its gradient, and its target among them (-1: elsewhere).
template <typename T>
struct RowGradient {
  const float* logits;
  T* dlogits;  // may be the logits
  int64_t n, target;
  float grad_scale, z_loss;

  // d/dlogit_i = p_i (1 + 2 z lse) - [i = target], times grad_scale.
  void Write(float lse) const {
    const float p_scale = grad_scale * (1.0f + 2.0f * z_loss * lse);
    const float d_target =
        target < 0 ? 0.0f : p_scale * std::exp(logits[target] - lse) - grad_scale;
    ScaledSoftmax(logits, lse, p_scale, dlogits, n);
    if (target >= 0) StoreOne(dlogits + target, d_target);
  }
};

template <typename T>
void ZeroRow(T* row, int64_t n) {
  for (int64_t i = 0; i < n; ++i) StoreOne(row + i, 0.0f);
}

}  // namespace

void CrossEntropy(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  const int64_t vocab = args.logits.dim(1);
  for (int64_t row = begin; row < end; ++row) {
    const float* logits = args.logits.f32() + row * vocab;
    const int64_t target = args.targets.i32()[row];
    float lse = 0;
    args.losses.f32()[row] = 0.0f;
    if (target >= 0) {
      const float max = RowMax(logits, vocab);
      lse = max + std::log(SumExp(logits, max, vocab));
      args.losses.f32()[row] = lse - logits[target];
    }
    if (!args.dlogits.defined()) continue;
    WithType(args.dlogits, [&](auto* all) {
      auto* dlogits = all + row * vocab;
      if (target < 0) return ZeroRow(dlogits, vocab);
      RowGradient<std::remove_pointer_t<decltype(all)>>{logits, dlogits,         vocab,
                                                        target, args.grad_scale, args.z_loss}
          .Write(lse);
    });
  }
}

void LogitStats(const LogitStatsArgs& args, int64_t begin, int64_t end) {
  const int64_t vocab = args.logits.dim(1);
  for (int64_t row = begin; row < end; ++row) {
    const float* logits = args.logits.f32() + row * args.logits.stride(0);
    const int64_t target = args.targets.i32()[row] - args.first_class;
    const float max = RowMax(logits, vocab);
    args.max.f32()[row] = max;
    args.sum.f32()[row] = SumExp(logits, max, vocab);
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
        ZeroRow(dlogits, vocab);
        continue;
      }
      const int64_t target = args.targets.i32()[row] - args.first_class;
      RowGradient<std::remove_pointer_t<decltype(all)>>{
          logits,          dlogits,    vocab, target >= 0 && target < vocab ? target : -1,
          args.grad_scale, args.z_loss}
          .Write(args.lse.f32()[row]);
    }
  });
}

}  // namespace cria::model::cpu::CRIA_ISA
