#include "model/llama/llama.h"

#include "base/check.h"

namespace cria::model {
namespace {

ParameterLayout LayoutOf(const LlamaConfig& config, const LlamaOptions& options) {
  return ParameterLayout(config, SliceOf(options.layout, config, options.rank));
}

ParameterBuffersOptions BuffersOf(const LlamaOptions& options) {
  return {.compute_type = ComputeType(options.precision),
          .training = options.training,
          .fixed_point = options.invariant(),
          .fp8_gather = options.fp8_gather};
}

}  // namespace

FlopsPerToken CountFlops(const LlamaConfig& config, int64_t time) {
  const ParameterLayout layout(config);
  // Scores and values: 2 GEMMs of QDim x visible keys each, 2 flops an element, x 3 with backward.
  const double per_key = 3.0 * 2.0 * 2.0 * static_cast<double>(config.layers * config.QDim());
  return {.matmul = 6.0 * static_cast<double>(layout.num_matmul_elements()),
          .attention_causal = per_key * static_cast<double>(time) / 2,
          .attention_full = per_key * static_cast<double>(time)};
}

MemoryPlan Llama::Plan(const LlamaConfig& config, const LlamaOptions& options, const Ops& ops) {
  const ParameterLayout layout = LayoutOf(config, options);
  const Coordinates at = CoordinatesOf(options.layout, options.rank);
  const ParameterParts parts(layout, options.layout.shard, options.layout.replicas(),
                             at.cp + options.layout.cp * at.dp);
  const ParameterMemory memory = ParameterBuffers::Plan(layout, parts, BuffersOf(options));
  const StageMemory stage = Stage::Plan(config, options, ops);
  return {.weights = memory.weights,
          .compute_copy = memory.compute_copy,
          .gradients = memory.gradients,
          .activations = stage.activations,
          .workspace = stage.workspace};
}

Llama::Llama(const LlamaConfig& config, const LlamaOptions& options, Ops* ops, const Groups* groups)
    : config_(config),
      parameters_(LayoutOf(config, options), BuffersOf(options), groups, ops),
      checked_ops_(ops),
      stage_(config, options, options.layout.tp > 1 ? &checked_ops_ : ops, &parameters_, groups),
      pipeline_(&stage_, groups) {}

Status Llama::Train(std::span<const TokenBatch> micro_batches, float grad_scale, LossSum* loss) {
  return pipeline_.Train(micro_batches, grad_scale, loss);
}

Status Llama::Evaluate(std::span<const TokenBatch> micro_batches, LossSum* loss) {
  return pipeline_.Evaluate(micro_batches, loss);
}

// On one rank nothing can fail.
LossSum Llama::ForwardBackward(const TokenBatch& batch, float grad_scale) {
  LossSum loss;
  const Status status = Train({&batch, 1}, grad_scale, &loss);
  CRIA_CHECK(status.ok(), Message(status));
  return loss;
}

LossSum Llama::Evaluate(const TokenBatch& batch) {
  LossSum loss;
  const Status status = Evaluate({&batch, 1}, &loss);
  CRIA_CHECK(status.ok(), Message(status));
  return loss;
}

void Llama::Logits(const TokenBatch& batch, int64_t begin, int64_t end, const Tensor& logits) {
  const Status status = stage_.Logits(batch, begin, end, logits);
  CRIA_CHECK(status.ok(), Message(status));
}

}  // namespace cria::model
