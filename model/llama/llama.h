// A Llama 3 and its training step, written out by layer: forward, loss, backward.
//
//   Llama model(config, {.precision = Precision::kBf16, .max_batch = 8, .max_time = 256},
//   ops.get()); InitializeParameters(model.layout(), seed, model.weights());
//   model.WeightsChanged();
//   model.ZeroGradients();
//   LossSum loss = model.ForwardBackward(batch, 1.0f / num_valid_tokens);
//   // an optimizer changes model.weights() by model.gradients(); then model.WeightsChanged() again
//
// Per layer (R = B x T rows of tokens; names as in transformers):
//
//   x_RD --+-- norm -- [q k v] -- rope -- attention -- o --+-- mid_RD --+-- norm -- [gate up] --
//          +---------------- residual ---------------------+            +--- residual ----- ...
//   ... -- silu(gate) * up -- down --+-- next layer's x_RD
//
// The residual sum runs inside the next norm's pass. The head's loss runs in tiles of rows: no R x
// V tensor exists. Recomputation: what a layer's backward pass needs is kept (none), norms' outputs
// and silu(gate) * up are computed again (selective), or all but the layer's input is (full).
//
// Memory comes from one Arena whose size Plan() computes by the same code; a step allocates nothing
// beyond it but the backend's scratch, once. Single-threaded. Same inputs, same bits, for any
// number of threads. Source: Llama 3 (arXiv 2407.21783), section 3.2.

#ifndef CRIA_MODEL_LLAMA_LLAMA_H_
#define CRIA_MODEL_LLAMA_LLAMA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/arena.h"
#include "model/llama/config.h"
#include "model/llama/linear.h"
#include "model/llama/parameters.h"
#include "model/ops.h"
#include "model/precision.h"

namespace cria::model {

enum class Recompute { kNone, kSelective, kFull };

struct LlamaOptions {
  Precision precision = Precision::kFp32;
  Recompute recompute = Recompute::kNone;
  int64_t max_batch = 1;   // sequences of a micro-batch
  int64_t max_time = 256;  // tokens of a sequence
  bool training = true;    // false: no gradients, and one layer's activations for all
  float z_loss = 0;
};

// A micro-batch: R = batch * time rows, sequence after sequence.
struct TokenBatch {
  int64_t batch = 0;
  int64_t time = 0;
  Tensor tokens;     // [R] i32
  Tensor targets;    // [R] i32, negative: not counted. May be undefined for Logits.
  Tensor positions;  // [R] i32, < max_time
  Tensor doc_start;  // [R] i32, index within the sequence of the first token of the row's document
};

struct LossSum {
  double sum = 0;         // over counted tokens, without the z-loss
  int64_t num_valid = 0;  // counted tokens
};

// Bytes by kind. The optimizer's state is the trainer's (2 fp32 a parameter).
struct MemoryPlan {
  int64_t weights = 0;       // fp32
  int64_t compute_copy = 0;  // of the weights in bf16
  int64_t gradients = 0;
  int64_t activations = 0;
  int64_t workspace = 0;  // the backend's scratch
  int64_t total() const { return weights + compute_copy + gradients + activations + workspace; }
};

// Floating-point operations for one token of a sequence of `time` tokens, forward and backward
// (2 x 3 per matrix element), attention counted by two conventions: only scores below the diagonal
// ("causal", Megatron-LM) or all ("full", torchtitan). Recomputation is not counted, by either.
struct FlopsPerToken {
  double matmul = 0;
  double attention_causal = 0;
  double attention_full = 0;
};
FlopsPerToken CountFlops(const LlamaConfig& config, int64_t time);

class Llama {
 public:
  // What a model of these options will use on this backend. Allocates nothing.
  static MemoryPlan Plan(const LlamaConfig& config, const LlamaOptions& options, const Ops& ops);

  Llama(const LlamaConfig& config, const LlamaOptions& options, Ops* ops);

  const LlamaConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  // [layout().num_elements()] fp32 each; gradients only when training.
  const Tensor& weights() const { return b_.weights; }
  const Tensor& gradients() const { return b_.gradients; }
  Linears* linears() { return &linears_; }
  const Linears& linears() const { return linears_; }

  // To be called after every change of weights(): refreshes the compute copy.
  void WeightsChanged();
  void ZeroGradients();

  // Adds the gradients of grad_scale * sum(loss) (and of the z-loss) to gradients().
  LossSum ForwardBackward(const TokenBatch& batch, float grad_scale);
  // The same loss, no gradients, no trace in any state.
  LossSum Evaluate(const TokenBatch& batch);
  // Logits of rows [begin, end) of the batch, fp32 [end - begin, vocab], into `logits`.
  void Logits(const TokenBatch& batch, int64_t begin, int64_t end, const Tensor& logits);

 private:
  // Activations of one layer that its backward pass reads.
  struct LayerState {
    Tensor x, mid;                        // residual before attention and before the MLP, fp32
    Tensor normed_attention, normed_ffn;  // GEMM inputs
    Tensor rstd_attention, rstd_ffn;
    Tensor qkv, attention, lse;
    Tensor gate_up, act;
  };
  struct Buffers {
    Tensor weights, compute_weights, gradients;
    std::vector<LayerState> layers;
    Tensor cosines, sines;
    Tensor delta;  // what a layer adds to the residual
    Tensor final_x, final_rstd, final_normed;
    Tensor logits, low_logits, losses;  // of one tile of the head
    Tensor dx, dx_low, dnormed, dattention, dqkv, dact;
  };
  // Everything a model of these options needs, in one order; `plan` gets bytes by kind.
  static Buffers Allocate(const LlamaConfig& config, const LlamaOptions& options, Arena* arena,
                          MemoryPlan* plan);
  static Linears AllocateLinears(const LlamaConfig& config, const LlamaOptions& options, Ops* ops,
                                 Arena* arena);

  // weights at an offset as a matrix, in the compute type; gradients the same in fp32.
  Tensor W(int64_t offset, int64_t rows, int64_t columns) const;
  Tensor NormW(int64_t offset) const;
  Tensor Gradient(int64_t offset, int64_t rows, int64_t columns) const;
  Tensor NormGradient(int64_t offset) const;

  // A layer's state cut to the batch's rows.
  LayerState State(int64_t layer, const TokenBatch& batch) const;
  AttentionForwardArgs AttentionArgs(const LayerState& s, const TokenBatch& batch) const;

  void ForwardLayers(const TokenBatch& batch, bool record);
  void RunLayer(int64_t layer, const LayerState& s, const TokenBatch& batch, bool record);
  void BackwardLayer(int64_t layer, const TokenBatch& batch);
  LossSum HeadLoss(const TokenBatch& batch, bool backward, float grad_scale);

  const LlamaConfig config_;
  const LlamaOptions options_;
  const ParameterLayout layout_;
  Ops* const ops_;
  Arena arena_;
  Buffers b_;
  Linears linears_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_LLAMA_H_
