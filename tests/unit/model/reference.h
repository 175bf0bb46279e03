// What each operation of model/ops.h computes, in double and in the fewest lines: the
// specification. Matrices are row-major vectors; shape letters as in model/ops.h.
//
//   std::vector<double> y = reference::Matmul(x, w, {.m = 3, .n = 5, .k = 7, .transpose_b = true});
//
// Backward passes are written out too, each term once, so that every element of a large gradient
// can be compared; reference_test.cc differentiates the forward functions numerically to check
// them. Thread-safe: functions of their arguments.

#ifndef CRIA_TESTS_UNIT_MODEL_REFERENCE_H_
#define CRIA_TESTS_UNIT_MODEL_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "model/fp8/recipe.h"

namespace cria::model::reference {

using Values = std::vector<double>;
using Indices = std::vector<int32_t>;

struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
};
Values Matmul(const Values& a, const Values& b, const MatmulShape& shape);

// y [R,D]; rstd [R] where it is given.
Values RmsNorm(const Values& x, const Values& weight, double eps, Values* rstd = nullptr);

struct RmsNormGradients {
  Values dx;       // [R,D]
  Values dweight;  // [D]
};
RmsNormGradients RmsNormBackward(const Values& dy, const Values& x, const Values& weight,
                                 double eps);

// cosines, sines: [P, K/2]. The backward pass is the inverse.
Values Rope(const Values& x, const Indices& positions, const Values& cosines, const Values& sines,
            int64_t heads, int64_t head_dim, bool inverse);

struct AttentionShape {
  int64_t batch = 0, time = 0, heads = 0, kv_heads = 0, head_dim = 0;
  double scale = 0;
};
// lse [b][h][t] where it is given.
Values Attention(const Values& q, const Values& k, const Values& v, const Indices& doc_start,
                 const AttentionShape& shape, Values* lse = nullptr);

struct AttentionGradients {
  Values dq, dk, dv;
};
AttentionGradients AttentionBackward(const Values& dout, const Values& q, const Values& k,
                                     const Values& v, const Indices& doc_start,
                                     const AttentionShape& shape);

// gate_up [R,2F] to [R,F].
Values Swiglu(const Values& gate_up, int64_t ffn);
Values SwigluBackward(const Values& dact, const Values& gate_up, int64_t ffn);

Values Embedding(const Indices& tokens, const Values& table, int64_t dim);
Values EmbeddingBackward(const Indices& tokens, const Values& dout, int64_t vocab, int64_t dim);

// Losses [R], the z-loss term included.
Values CrossEntropy(const Values& logits, const Indices& targets, int64_t vocab, double z_loss);
// Of grad_scale * the sum of the losses.
Values CrossEntropyBackward(const Values& logits, const Indices& targets, int64_t vocab,
                            double z_loss, double grad_scale);

struct AdamWSettings {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0, grad_scale = 1;
  int64_t step = 1;
};
void AdamW(const AdamWSettings& settings, const Values& grad, Values* weight, Values* m, Values* v);

double SumOfSquares(const Values& x);

// The values that an 8-bit GEMM sees, times their dequantisation.
Values Quantize(const QuantizeSpec& spec, const Values& x, int64_t rows, int64_t cols);

}  // namespace cria::model::reference

#endif  // CRIA_TESTS_UNIT_MODEL_REFERENCE_H_
