// A Llama 3, or the part of one that a rank of a parallel job holds: weights, gradients, layers.
//
//   Llama model(config, {.precision = Precision::kBf16, .max_batch = 8, .max_time = 256},
//   ops.get()); InitializeParameters(model.layout(), seed, model.weights());
//   model.WeightsChanged();
//   model.ZeroGradients();
//   LossSum loss = model.ForwardBackward(batch, 1.0f / num_valid_tokens);
//   // an optimizer changes model.weights() by model.gradients(); then model.WeightsChanged() again
//
// The same on many ranks, each with its own micro-batches' rows (parallel/context_parallel.h):
//
//   Llama model(config, {.layout = layout, .rank = rank, .slots = slots, ...}, ops.get(), &groups);
//   model.parameters()->Initialize(seed);
//   CRIA_RETURN_IF_ERROR(model.Train(micro_batches, 1.0f / num_valid_tokens, &loss));
//   CRIA_RETURN_IF_ERROR(model.parameters()->FinishGradients());
//   // an optimizer changes this rank's part; then parameters()->GatherWeights()
//
// The layers are stage.h's, the order of micro-batches pipeline.h's, memory and traffic of the
// weights parameter_buffers.h's. Single-threaded. Same inputs, same bits, for any number of
// threads.

#ifndef CRIA_MODEL_LLAMA_LLAMA_H_
#define CRIA_MODEL_LLAMA_LLAMA_H_

#include <cstdint>
#include <span>

#include "base/status.h"
#include "model/llama/config.h"
#include "model/llama/linear.h"
#include "model/llama/parameters.h"
#include "model/llama/stage.h"
#include "model/llama/token_batch.h"
#include "model/ops.h"
#include "model/parallel/groups.h"
#include "model/parallel/parameter_buffers.h"
#include "model/parallel/pipeline.h"
#include "model/parallel/placement_ops.h"

namespace cria::model {

using LlamaOptions = StageOptions;

// Bytes by kind. The optimizer's state is the trainer's (2 fp32 for each parameter that the rank
// updates).
struct MemoryPlan {
  int64_t weights = 0;       // fp32
  int64_t compute_copy = 0;  // of the weights as GEMM operands, and gathered blocks
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

  // `groups` null: one rank. It and `ops` outlive the model.
  Llama(const LlamaConfig& config, const LlamaOptions& options, Ops* ops,
        const Groups* groups = nullptr);

  const LlamaConfig& config() const { return config_; }
  const LlamaOptions& options() const { return stage_.options(); }
  const ParameterLayout& layout() const { return parameters_.layout(); }
  ParameterBuffers* parameters() { return &parameters_; }
  const ParameterBuffers& parameters() const { return parameters_; }
  // [layout().num_elements()] fp32 each where this rank holds them whole; gradients only when
  // training.
  const Tensor& weights() const { return parameters_.weights(); }
  const Tensor& gradients() const { return parameters_.gradients(); }
  Linears* linears() { return stage_.linears(); }
  const Linears& linears() const { return stage_.linears(); }

  // To be called after every change of weights(): refreshes the compute copy.
  void WeightsChanged() { parameters_.WeightsChanged(); }
  void ZeroGradients() { parameters_.ZeroGradients(); }

  // Forward and backward of a step's micro-batches: adds the gradients of grad_scale * sum(loss)
  // (and of the z-loss). *loss gets this rank's part: last stages have it, all tp ranks the same.
  Status Train(std::span<const TokenBatch> micro_batches, float grad_scale, LossSum* loss);
  // The same loss, no gradients, no trace in any state.
  Status Evaluate(std::span<const TokenBatch> micro_batches, LossSum* loss);

  // One micro-batch on one rank.
  LossSum ForwardBackward(const TokenBatch& batch, float grad_scale);
  LossSum Evaluate(const TokenBatch& batch);
  // Logits of rows [begin, end) of the batch, fp32 [end - begin, vocab], into `logits`.
  void Logits(const TokenBatch& batch, int64_t begin, int64_t end, const Tensor& logits);

 private:
  const LlamaConfig config_;
  ParameterBuffers parameters_;
  PlacementOps checked_ops_;  // what the stage of a model that is divided by tp runs on
  Stage stage_;
  Pipeline pipeline_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_LLAMA_H_
