// Sums of invariant numerics: what ranks add up is cut into grains that no layout divides (a head,
// a head's share of the channels, a few tokens of a sequence). A grain's sum is one chain of
// multiply-adds; grains are added in 64-bit fixed point (Ops::AddFixed), where order and grouping
// don't show. So each layout gives the same bits.
//
//   GrainSums sums(ops, {.token_grain = 16}, scratch);
//   ops->Zero(fixed_RD);
//   sums.AddOutputs(x_RK, w_DK, num_grains, fixed_RD);      // then summed over ranks, as integers
//
// Gradients are in units of 2^-52 on their way between layers, of 2^-50 in the parameters' buffers
// (parameter_buffers.h), activations in units of 2^-40. Single-threaded; fp32 only.

#ifndef CRIA_MODEL_LLAMA_GRAIN_SUMS_H_
#define CRIA_MODEL_LLAMA_GRAIN_SUMS_H_

#include <cstdint>

#include "model/ops.h"
#include "model/parallel/mesh.h"
#include "model/tensor.h"

namespace cria::model {

inline constexpr int kActivationLog2Scale = 40;
inline constexpr int kFlowingGradientLog2Scale = 52;

class GrainSums {
 public:
  // `scratch`: fp32, as many elements as the largest product has.
  GrainSums(Ops* ops, int64_t token_grain, const Tensor& scratch)
      : ops_(ops), token_grain_(token_grain), scratch_(scratch) {}

  // sum [R,N] i64 += x [R,K] w [N,K]^T, K in equal grains.
  void AddOutputs(const Tensor& x, const Tensor& w, int64_t num_grains, const Tensor& sum);
  // sum [R,K] i64 += dy [R,n] w [n,K]: one grain of outputs.
  void AddInputGradient(const Tensor& dy, const Tensor& w, const Tensor& sum);
  // dw [N,K] i64 += dy [R,N]^T x [R,K], by grains of tokens.
  void AddWeightGradient(const Tensor& dy, const Tensor& x, const Tensor& dw);
  // args.dweight is i64 [D]; the rest as Ops::RmsNormBackward, by grains of tokens.
  void NormBackward(const RmsNormBackwardArgs& args);
  // args as Ops::AttentionBackward of a stretch of queries, fp32; dk, dv i64, added to. By heads,
  // sequences and grains of queries.
  void AttentionBackward(const AttentionBackwardArgs& args);

  int64_t token_grain() const { return token_grain_; }
  // False when something was not finite or too large since the last call.
  bool TakeFinite();

 private:
  void Add(const Tensor& from, const Tensor& to, int log2_scale);

  Ops* const ops_;
  const int64_t token_grain_;
  const Tensor scratch_;
  bool finite_ = true;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_GRAIN_SUMS_H_
