// The layers of a Llama that one rank holds, and their part of a training step, written out by
// layer: forward, loss, backward. A whole model on one rank is one stage of one chunk.
//
//   Stage stage(config, options, ops, &store, &groups);
//   CRIA_RETURN_IF_ERROR(stage.Forward({.chunk = 0, .slot = 0, .batch = batch, ...}, &loss));
//   CRIA_RETURN_IF_ERROR(stage.Backward({.chunk = 0, .slot = 0, .batch = batch, ...}));
//
// Per layer (R rows of tokens; names as in transformers):
//
//   x_RD --+-- norm -- [q k v] -- rope -- attention -- o --+-- mid_RD --+-- norm -- [gate up] --
//          +---------------- residual ---------------------+            +--- residual ----- ...
//   ... -- silu(gate) * up -- down --+-- next layer's x_RD
//
// The residual sum runs inside the next norm's pass. The head's loss runs in tiles of rows: no R x
// V tensor exists. Recomputation: what a layer's backward pass needs is kept (none), norms' outputs
// and silu(gate) * up are computed again (selective), or all but the layer's input is (full).
//
// Parallel:
//   tp  each rank has its share of heads, channels and vocabulary. The residual stream is split by
//       rows (sequence parallel): rows are gathered before the matrices that are split by columns
//       and summed and scattered after those that are split by rows. Norms' outputs are computed
//       and gathered again in the backward pass.
//   cp  each rank has two chunks of each sequence (context_parallel.h); keys and values are
//       gathered, their gradients summed and scattered.
//   pp  whoever drives the stage moves Boundary() between ranks (pipeline.h): the chunk's output
//       forward, then the gradient of it back, in place that of the chunk's input.
// Weights and gradients are the store's (parameter_store.h).
//
// Memory comes from one Arena whose size Plan() computes by the same code; a step allocates nothing
// beyond it but the backend's scratch, once. Single-threaded. Same inputs, same bits, for any
// number of threads. Errors are those of the groups; after one the stage's state is undefined.
// Source: Llama 3 (arXiv 2407.21783), sections 3.2 and 3.3.

#ifndef CRIA_MODEL_LLAMA_STAGE_H_
#define CRIA_MODEL_LLAMA_STAGE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/arena.h"
#include "model/llama/config.h"
#include "model/llama/grain_sums.h"
#include "model/llama/linear.h"
#include "model/llama/parameter_store.h"
#include "model/llama/parameters.h"
#include "model/llama/stage_buffers.h"
#include "model/llama/token_batch.h"
#include "model/ops.h"
#include "model/parallel/context_parallel.h"
#include "model/parallel/groups.h"
#include "model/parallel/row_split.h"

namespace cria::model {

// One micro-batch in one chunk.
struct StageStep {
  int chunk = 0;
  int slot = 0;
  TokenBatch batch = {};
  bool record = true;    // false in evaluation: leaves no trace in the FP8 state
  bool backward = true;  // a Backward follows: the last chunk's loss leaves its gradient
  bool last = false;     // of the step's micro-batches in this chunk
  float grad_scale = 1;  // of the loss's gradient
};

class Stage {
 public:
  // `store` and `groups` outlive the stage; groups null: one rank.
  Stage(const LlamaConfig& config, const StageOptions& options, Ops* ops, ParameterStore* store,
        const Groups* groups);

  // Bytes of the stage's own buffers and of the backend's scratch.
  static StageMemory Plan(const LlamaConfig& config, const StageOptions& options, const Ops& ops);

  const ParameterLayout& parameters() const { return parameters_; }
  const StageOptions& options() const { return options_; }
  Linears* linears() { return &linears_; }
  const Linears& linears() const { return linears_; }

  // A first chunk starts from the batch's tokens, others from Input(). The last chunk adds to
  // *loss, others leave their output in Boundary().
  Status Forward(const StageStep& step, LossSum* loss);
  // From the gradient of the chunk's output in Boundary() to that of its input, in place. Adds the
  // gradients of grad_scale * loss (and of the z-loss).
  Status Backward(const StageStep& step);
  // Logits of rows [begin, end) of the batch, fp32 [end - begin, vocab]: one rank only, one chunk.
  Status Logits(const TokenBatch& batch, int64_t begin, int64_t end, const Tensor& logits);

  // This rank's rows of a micro-batch, fp32 [rows, dim]: what a neighbour sends and receives.
  Tensor Input(int slot, const TokenBatch& batch) const;
  Tensor Boundary(int slot, const TokenBatch& batch) const;
  int num_slots() const { return static_cast<int>(b_.boundaries.size()); }

 private:
  // A layer's weights and offsets.
  struct LayerWeights {
    Tensor block;
    LayerOffsets at;
    const float* factors = nullptr;  // ParameterStore::WeightFactors

    const float* factor(int product) const { return factors ? factors + product : nullptr; }
  };
  bool first(int chunk) const { return chunk == 0 && parameters_.slice().embedding; }
  bool last(int chunk) const;
  int64_t rows(const TokenBatch& batch) const {
    return batch.batch * batch.time / options_.layout.cp;
  }
  // Rows of the residual stream that this rank holds.
  int64_t own_rows(const TokenBatch& batch) const { return rows(batch) / options_.layout.tp; }
  // Indices among the stage's layers.
  LayerRange LayersOfChunk(int chunk) const;
  // The model's index of one of them.
  int64_t LayerOfModel(int chunk, int64_t layer) const {
    return parameters_.slice().chunks[static_cast<size_t>(chunk)].begin + layer -
           LayersOfChunk(chunk).begin;
  }

  LayerState State(int64_t layer, const StageStep& step) const;
  // The layer's weights, after which those of layer `prefetch` are wanted (-1: none).
  StatusOr<LayerWeights> WeightsOf(int64_t layer, int64_t prefetch);
  Tensor NormWeight(int64_t offset) const;
  StatusOr<Tensor> NormGradient(int64_t offset);

  Status Embed(const StageStep& step, const Tensor& x);
  Status ForwardLayers(const StageStep& step);
  // From the first norm's output on this rank's rows to what the layer adds to the residual.
  Status RunLayer(int64_t layer, const LayerWeights& w, const LayerState& s,
                  const TokenBatch& batch, bool record);

  // Of the whole sequences, [B * T, 2 KV].
  StatusOr<Tensor> KeysAndValues(const LayerState& s, const TokenBatch& batch);
  std::vector<ContextSpan> Spans(const TokenBatch& batch) const;
  AttentionForwardArgs AttentionArgs(const LayerState& s, const Tensor& kv, const TokenBatch& batch,
                                     const ContextSpan& span) const;
  Status Attention(const LayerState& s, const TokenBatch& batch);
  Status AttentionBackward(const LayerState& s, const TokenBatch& batch, const Tensor& dattention,
                           const Tensor& dqkv);

  // From gradients of keys and values by sequence to those of this rank's tokens; zero on a rank
  // that shares them with an earlier one.
  Status SumKeyGradients(const TokenBatch& batch, const Tensor& sequences, const Tensor& own);

  // own = this rank's rows of the sum of `partial` over tp, in own's type.
  Status SumRows(const Tensor& partial, const Tensor& own);
  // own = the sum over tp of x w^T.
  Status RowProduct(const LinearForwardArgs& args, const Tensor& own);
  // The three products of a backward pass: of all outputs' gradients; into dnormed_partial, to be
  // summed over tp; of the weight.
  Status InputGradient(const LinearBackwardArgs& args);
  Status PartialInputGradient(const LinearBackwardArgs& args, std::span<const Range> grains);
  Status WeightGradient(const LinearBackwardArgs& args);
  // Of the rows of the qkv and the gate_up matrix.
  std::vector<Range> QkvGrains() const;
  std::vector<Range> GateUpGrains() const;
  // Invariant numerics: notes what did not fit.
  void NoteFinite(const char* where);

  // Where the gradient of the residual is copied to in the compute type; undefined for fp32.
  Tensor GradientCopy(const TokenBatch& batch) const;
  // The gradient of the residual as a GEMM operand, for all rows of the batch.
  StatusOr<Tensor> GatheredGradient(const Tensor& dx, const TokenBatch& batch);
  Status BackwardLayer(int64_t layer, int64_t prefetch, const StageStep& step);
  Status BackwardMlp(int64_t layer, const LayerWeights& w, const LayerState& s,
                     const Tensor& gradients, const StageStep& step);
  Status BackwardAttention(int64_t layer, const LayerWeights& w, const LayerState& s,
                           const Tensor& gradients, const StageStep& step);
  RmsNormForwardArgs AttentionNorm(const LayerWeights& w, const LayerState& s) const;
  RmsNormForwardArgs FfnNorm(const LayerWeights& w, const LayerState& s) const;
  // A norm's output for all rows, computed and gathered where it was not kept.
  StatusOr<Tensor> NormAgain(const RmsNormForwardArgs& norm, const Tensor& normed);
  // From dnormed_partial to the residual's gradient. `offset`: of the norm's weight.
  Status NormBackward(const RmsNormForwardArgs& norm, int64_t offset, const StageStep& step);
  Status EmbedBackward(const StageStep& step);

  // stage_head.cc
  Status HeadLoss(const StageStep& step, LossSum* loss);
  Status TileLoss(const StageStep& step, const Tensor& targets, const Tensor& logits,
                  const Tensor& losses, const Tensor& dlogits);
  Status CombineSoftmax(int64_t tile, const Tensor& targets, const Tensor& losses);
  void HeadGradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& head, int64_t begin,
                     const Tensor& gradient);
  std::vector<Range> VocabGrains() const;

  const LlamaConfig config_;  // the model's
  const StageOptions options_;
  const ParameterLayout parameters_;
  const LlamaConfig local_;  // this rank's sizes
  Ops* const ops_;
  ParameterStore* const store_;
  const Groups* const groups_;
  const RowSplit split_;
  Arena arena_;
  StageBuffers b_;
  Linears linears_;
  GrainSums grains_;  // used in invariant numerics
};

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_STAGE_H_
