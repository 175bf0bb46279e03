// Ops: the operations that a Llama's training step is made of, as one backend runs them.
//
// model/llama calls it; model/cpu implements it (model/cuda will). Arguments are structs of tensors
// with shape letters: R rows (= B x T tokens), D model, H heads, G kv heads, K head dim, F ffn,
// V vocab. "compute type" is fp32 or bf16: the type of GEMM operands. Sums, norms, softmax, losses,
// residuals and weight gradients are fp32 whatever the compute type is.
//
//   std::unique_ptr<Ops> ops = NewCpuOps();
//   ops->Matmul({.a = x_RD, .b = w_FD, .c = y_RF, .transpose_b = true});
//
// Shapes are checked (a mismatch is our bug: CHECK). An operation returns when its result can be
// read. The result of each is the same bits on every run and for every number of threads on one
// machine. Single-threaded: one caller at a time per object; operations use threads inside. The
// naive double-precision reference of each is in tests/unit/model/reference.h.

#ifndef CRIA_MODEL_OPS_H_
#define CRIA_MODEL_OPS_H_

#include <cstdint>
#include <memory>

#include "model/fp8/recipe.h"
#include "model/tensor.h"

namespace cria::model {

// c[M,N] = op(a) op(b), or added to c. a, b: fp32 or bf16, c: fp32 or bf16; fp32 sums.
// 2 M N K flops.
struct MatmulArgs {
  Tensor a = {};  // [M,K], or [K,M] when transpose_a
  Tensor b = {};  // [K,N], or [N,K] when transpose_b
  Tensor c = {};  // [M,N]
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;   // c += instead of c =; fp32 c only
  float scale = 1;           // of the product
  bool b_is_weight = false;  // b is a weight: see MatmulPackedArgs
  bool keep_b = false;       // and stays as it is until WeightsChanged: its packed form may be kept
  // Each element of the product is one chain of fused multiply-adds along K, whatever is
  // transposed: a function of its row of op(a) and its column of op(b) alone. fp32 operands only.
  bool chain = false;
};

// A weight w[N,K] in the order that the backend's product with few rows reads best. A packed weight
// is a tensor of PackedElements(dtype, N, K) elements.
struct PackWeightArgs {
  Tensor w = {};          // [n,K], fp32 or bf16
  Tensor packed = {};     // of w's type
  int64_t first_row = 0;  // w's rows become rows [first_row, first_row + n) of the packed weight
};

// c[M,N] = a[M,K] w[N,K]^T. Each element is one chain of fused multiply-adds along K, so a row of c
// depends on its row of a alone. In fp32, Matmul gives the same bits for a, w that are marked
// transpose_b and b_is_weight (keep_b or not). Reads a packed weight once per 240 rows.
struct MatmulPackedArgs {
  Tensor a = {};       // [M,K] fp32 or bf16
  Tensor packed = {};  // fp32 or bf16
  Tensor c = {};       // [M,N] fp32 or bf16
};

// Rows of a packed weight, as fp32.
struct PackedEmbeddingArgs {
  Tensor tokens = {};  // [R] i32
  Tensor packed = {};
  Tensor out = {};  // [R,D] fp32
};

// sum = x + delta (where delta is given), rstd = 1/sqrt(mean(sum^2) + eps), y = weight * sum *
// rstd.
struct RmsNormForwardArgs {
  Tensor x = {};       // [R,D] fp32
  Tensor delta = {};   // [R,D] fp32 or bf16, or undefined
  Tensor sum = {};     // [R,D] fp32 out, may be x; undefined when delta is
  Tensor weight = {};  // [D] fp32
  Tensor y = {};       // [R,D] fp32 or bf16 out
  Tensor rstd = {};    // [R] fp32 out
  float eps = 1e-5f;
};

// dx += d(norm)/dx, dweight += d(norm)/dweight. Also writes dx to dx_copy where that is given: the
// next GEMM's operand in the compute type.
struct RmsNormBackwardArgs {
  Tensor dy = {};       // [R,D] fp32 or bf16
  Tensor x = {};        // [R,D] fp32, what the forward pass normalised
  Tensor weight = {};   // [D] fp32
  Tensor rstd = {};     // [R] fp32
  Tensor dx = {};       // [R,D] fp32, added to
  Tensor dx_copy = {};  // [R,D] bf16 out, or undefined
  Tensor dweight = {};  // [D] fp32, added to
};

// Rotates pairs (i, i + K/2) of each head by position (Hugging Face's order), in place.
struct RopeArgs {
  Tensor x = {};          // [R, heads*K] fp32 or bf16, rows may be strided
  Tensor positions = {};  // [R] i32
  Tensor cosines = {};    // [P, K/2] fp32
  Tensor sines = {};      // [P, K/2] fp32
  int64_t head_dim = 0;
  bool inverse = false;  // the backward pass rotates back
};

// Causal attention inside documents: token t of a sequence sees s with doc_start[t] <= s <= t.
// Queries may be a stretch of the sequences (a rank's chunk of a context that is split): row i of
// each is token first_query + i, among `keys` tokens of keys and values. A query's result is the
// same bits in any stretch. Tiled; no T x T matrix. 2 x 2 B H T^2/2 K flops.
struct AttentionForwardArgs {
  Tensor q = {};          // [R, H*K], R = B * time, rows may be strided
  Tensor k = {};          // [B * keys, G*K], rows may be strided
  Tensor v = {};          // [B * keys, G*K]
  Tensor doc_start = {};  // [R] i32, index within the sequence
  Tensor out = {};        // [R, H*K] of q's type
  Tensor lse = {};        // [B*H*T] fp32 out: log-sum-exp of the scaled scores, [b][h][t]
  int64_t batch = 0, time = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;          // 1/sqrt(K)
  int64_t keys = 0;         // of each sequence, >= first_query + time; 0: time
  int64_t first_query = 0;  // index within the sequence of the first query
  // Forward from a cache, one sequence: `keys` tokens (StoreKeyValues) instead of k and v, of which
  // the queries are the last `time`.
  Tensor key_cache = {}, value_cache = {};
};

// Puts keys and values into caches in the order that attention reads best. A cache is a tensor of
// CacheElements(positions, G, K) elements of their type.
struct StoreKeyValuesArgs {
  Tensor k = {}, v = {};  // [n, G*K], rows may be strided
  Tensor key_cache = {}, value_cache = {};
  int64_t first = 0;  // position of the first row
  int64_t kv_heads = 0, head_dim = 0;
};

// dq is written; dk, dv are written, keys that no query sees with zeros, or added to (fp32 then).
struct AttentionBackwardArgs {
  AttentionForwardArgs forward;
  Tensor dout = {};  // [R, H*K]
  Tensor dq = {};    // [R, H*K], rows may be strided
  Tensor dk = {};    // [B * keys, G*K] of q's type or fp32, rows may be strided
  Tensor dv = {};    // [B * keys, G*K]
  bool accumulate = false;
};

// act = silu(gate) * up.
struct SwigluForwardArgs {
  Tensor gate_up = {};  // [R, 2F]: gate then up
  Tensor act = {};      // [R, F]
};

// dgate_up may be the same memory as gate_up. act, where given, is computed again on the way.
struct SwigluBackwardArgs {
  Tensor gate_up = {};   // [R, 2F]
  Tensor dact = {};      // [R, F]
  Tensor dgate_up = {};  // [R, 2F] out
  Tensor act = {};       // [R, F] out, or undefined
};

// The table may be a part of the vocabulary: tokens outside [first_token, first_token + V) give
// zeros and no gradient.
struct EmbeddingForwardArgs {
  Tensor tokens = {};  // [R] i32
  Tensor table = {};   // [V, D] fp32
  Tensor out = {};     // [R, D] fp32, or the compute type
  int64_t first_token = 0;
};

struct EmbeddingBackwardArgs {
  Tensor tokens = {};  // [R] i32
  Tensor dout = {};    // [R, D] fp32, rows may be strided
  Tensor dtable = {};  // [V, D] fp32, added to; or i64 fixed point (AddFixedArgs)
  int64_t first_token = 0;
  int log2_scale = 0;  // of fixed point
};

// out = a + b.
struct AddArgs {
  Tensor a = {};    // [R,D] fp32
  Tensor b = {};    // [R,D] fp32 or bf16
  Tensor out = {};  // [R,D] fp32, may be a
};

// Softmax cross-entropy of each row against its target; a row whose target is negative counts as
// nothing. loss_r = lse_r - logit_r[target] + z_loss * lse_r^2.
struct CrossEntropyArgs {
  Tensor logits = {};   // [R, V] fp32
  Tensor targets = {};  // [R] i32
  Tensor losses = {};   // [R] fp32 out, without the z-loss term; 0 for rows that don't count
  Tensor dlogits =
      {};  // [R, V] out, fp32 (may be logits) or bf16, or undefined: no gradient wanted
  float grad_scale = 1;  // of the gradient: 1 / (valid tokens of the global batch)
  float z_loss = 0;      // coefficient
};

// The cross-entropy of logits whose classes are split: this part's contribution to each row's
// softmax, then, with the row's log-sum-exp over all parts, this part's gradient.
struct LogitStatsArgs {
  // [R, V] fp32: classes [first_class, first_class + V). Rows may be strided.
  Tensor logits = {};
  Tensor targets = {};  // [R] i32, of all classes; negative: not counted
  int64_t first_class = 0;
  Tensor max = {};           // [R] fp32 out: largest logit; -infinity when V = 0
  Tensor sum = {};           // [R] fp32 out: sum of exp(logit - max)
  Tensor target_logit = {};  // [R] fp32 out: 0 where the target is in another part
};

// dlogits = grad_scale * (softmax * (1 + 2 z_loss lse) - onehot(target)), zeros in rows that don't
// count. With one part and its own lse the same bits as CrossEntropy's.
struct LogitGradientArgs {
  Tensor logits = {};   // [R, V] fp32
  Tensor targets = {};  // [R] i32
  int64_t first_class = 0;
  Tensor lse = {};      // [R] fp32
  Tensor dlogits = {};  // [R, V] fp32 (may be logits) or bf16 out
  float grad_scale = 1;
  float z_loss = 0;
};

// Sums whose result does not depend on the order or on how they are grouped: numbers are rounded to
// multiples of 2^-log2_scale and added as 64-bit integers. to += round(from * 2^log2_scale).
struct AddFixedArgs {
  Tensor from = {};    // [R,C] fp32, rows may be strided
  Tensor to = {};      // [R,C] i64, rows may be strided
  int log2_scale = 0;  // -126 to 126
};
// to = from * 2^-log2_scale, rounded once.
struct FixedToFloatArgs {
  Tensor from = {};  // [R,C] i64
  Tensor to = {};    // [R,C] fp32 or bf16
  int log2_scale = 0;
};

// One AdamW step with decoupled decay over n elements (Loshchilov & Hutter, 2019):
// g *= grad_scale; m, v updated; w -= lr * (m_hat / (sqrt(v_hat) + eps) + weight_decay * w).
struct AdamWArgs {
  Tensor weight = {};  // [n] fp32
  Tensor grad = {};    // [n] fp32, not changed
  Tensor m = {};       // [n] fp32
  Tensor v = {};       // [n] fp32
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  float grad_scale = 1;  // clipping
  int64_t step = 1;      // 1 for the first update
};

// to = the nearest 8-bit numbers to from * scale, held exactly in bf16 or fp32
// (model/fp8/quantize.h).
struct QuantizeArgs {
  QuantizeSpec spec;
  Tensor from = {};       // [R,C] fp32 or bf16
  Tensor to = {};         // [R,C] bf16 or fp32
  float fixed_scale = 0;  // kTensor only: 0 takes the scale from this tensor's amax
  // The amax of each group (NumScales(unit, R, C) fp32, as Amax gives them), where `from` is a part
  // of a tensor whose groups are larger. Undefined: those of `from`.
  Tensor amax = {};
};
// amax = the largest |x| of each group; infinite or NaN where an element is.
struct AmaxArgs {
  ScaleUnit unit = ScaleUnit::kTensor;
  Tensor from = {};  // [R,C] fp32 or bf16
  Tensor amax = {};  // fp32 [NumScales(unit, R, C)] out
};
struct Quantized {
  float dequant = 1;  // the product is to be multiplied with this
  float amax = 0;     // not finite when an element is not
};

// Sizes of a training step, for the plan of a backend's scratch memory.
struct StepShape {
  int64_t batch = 0, time = 0;
  int64_t dim = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  int64_t kept_layers = 0;     // layers whose weights Matmul gets with keep_b
  bool kept_head = false;      // and so the head's
  int64_t head_rows = 0;       // rows of a tile of the head's loss
  int64_t attention_time = 0;  // queries of a sequence that attention gets at once; 0: time
  bool bf16 = false;
  bool training = true;
  bool chain = false;  // Matmul gets `chain`
};

class Ops {
 public:
  virtual ~Ops() = default;

  // Bytes of scratch that the operations of such a step will hold. Allocates nothing.
  virtual int64_t WorkspaceBytes(const StepShape& shape) const = 0;

  // Weights handed over as Matmul's b have changed.
  virtual void WeightsChanged() = 0;
  virtual void Matmul(const MatmulArgs& args) = 0;

  virtual int64_t PackedElements(DType dtype, int64_t n, int64_t k) const = 0;
  virtual void PackWeight(const PackWeightArgs& args) = 0;
  virtual void MatmulPacked(const MatmulPackedArgs& args) = 0;
  virtual void PackedEmbedding(const PackedEmbeddingArgs& args) = 0;

  virtual Quantized Quantize(const QuantizeArgs& args) = 0;
  virtual void Amax(const AmaxArgs& args) = 0;

  virtual void RmsNormForward(const RmsNormForwardArgs& args) = 0;
  virtual void RmsNormBackward(const RmsNormBackwardArgs& args) = 0;
  virtual void Rope(const RopeArgs& args) = 0;
  virtual void AttentionForward(const AttentionForwardArgs& args) = 0;
  virtual int64_t CacheElements(int64_t positions, int64_t kv_heads, int64_t head_dim) const = 0;
  virtual void StoreKeyValues(const StoreKeyValuesArgs& args) = 0;
  virtual void AttentionBackward(const AttentionBackwardArgs& args) = 0;
  virtual void SwigluForward(const SwigluForwardArgs& args) = 0;
  virtual void SwigluBackward(const SwigluBackwardArgs& args) = 0;
  virtual void EmbeddingForward(const EmbeddingForwardArgs& args) = 0;
  // False as AddFixed's, of fixed point.
  virtual bool EmbeddingBackward(const EmbeddingBackwardArgs& args) = 0;
  virtual void CrossEntropy(const CrossEntropyArgs& args) = 0;
  virtual void LogitStats(const LogitStatsArgs& args) = 0;
  virtual void LogitGradient(const LogitGradientArgs& args) = 0;
  virtual void Add(const AddArgs& args) = 0;

  // False when a number was not finite, or too large (2^(62 - log2_scale) and more): it is left
  // out.
  virtual bool AddFixed(const AddFixedArgs& args) = 0;
  virtual void FixedToFloat(const FixedToFloatArgs& args) = 0;

  virtual void AdamW(const AdamWArgs& args) = 0;
  // Sum of squares in double, over fixed blocks in a fixed order. Not finite exactly when an
  // element of x is not finite.
  virtual double SumOfSquares(const Tensor& x) = 0;

  virtual void Zero(const Tensor& x) = 0;
  // to = from, converted to to's type (i32 and i64 to their own only); [R,C] or contiguous, equal
  // shapes.
  virtual void Copy(const Tensor& from, const Tensor& to) = 0;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_OPS_H_
