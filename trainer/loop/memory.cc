#include "trainer/loop/memory.h"

#include <fstream>
#include <sstream>

#include "base/str.h"

namespace cria::trainer {
namespace {

// What oneDNN's generated kernels and packing buffers, OpenMP's stacks and the writers of a run add
// to a process after the plan is made; measured, and small beside any model worth planning.
constexpr int64_t kLaterRuntimeBytes = 2 << 20;

// Ids, targets, positions and document starts of a batch of sequences.
int64_t BatchBytes(int64_t sequences, int64_t seq) { return sequences * seq * 4 * 4; }

std::string Line(const char* what, int64_t bytes) {
  return StrFormat("  %-22s %12s\n", what, HumanBytes(static_cast<double>(bytes)).c_str());
}

}  // namespace

JobPlan PlanJob(const TrainConfig& config, const model::Ops& ops) {
  const model::ParameterLayout layout(config.model);
  JobPlan plan;
  plan.model = model::Llama::Plan(config.model, config.LlamaOptions(), ops);
  plan.optimizer = AdamW::StateBytes(layout);
  plan.batches = BatchBytes(config.train.batch, config.train.seq) +
                 BatchBytes(config.LlamaOptions().max_batch, config.train.seq);
  plan.runtime = UsedMemoryBytes() + kLaterRuntimeBytes;
  plan.num_parameters = layout.num_elements();
  plan.flops = model::CountFlops(config.model, config.train.seq);
  return plan;
}

std::string DescribePlan(const TrainConfig& config, const JobPlan& plan) {
  const model::LlamaConfig& m = config.model;
  std::string out = StrFormat(
      "parameters %lld (%s): %lld layers, dim %lld, %lld heads (%lld kv) of %lld, ffn %lld, "
      "vocabulary %lld, %s head\n",
      static_cast<long long>(plan.num_parameters),
      HumanCount(static_cast<double>(plan.num_parameters)).c_str(),
      static_cast<long long>(m.layers), static_cast<long long>(m.dim),
      static_cast<long long>(m.heads), static_cast<long long>(m.kv_heads),
      static_cast<long long>(m.HeadDim()), static_cast<long long>(m.ffn),
      static_cast<long long>(m.vocab), m.tied_head ? "tied" : "untied");
  out += StrFormat(
      "step: %lld sequences of %lld tokens, %lld at once; precision %s, recompute %s\n",
      static_cast<long long>(config.train.batch), static_cast<long long>(config.train.seq),
      static_cast<long long>(config.LlamaOptions().max_batch), config.precision.c_str(),
      config.train.recompute.c_str());
  out += StrFormat(
      "flops a token, forward and backward: %s with causal attention counted, %s with full\n",
      HumanCount(plan.flops.matmul + plan.flops.attention_causal).c_str(),
      HumanCount(plan.flops.matmul + plan.flops.attention_full).c_str());
  out += "memory:\n";
  out += Line("weights (fp32)", plan.model.weights);
  out += Line("weights (bf16 copy)", plan.model.compute_copy);
  out += Line("gradients (fp32)", plan.model.gradients);
  out += Line("optimizer (fp32 m, v)", plan.optimizer);
  out += Line("activations", plan.model.activations);
  out += Line("workspace", plan.model.workspace);
  out += Line("batches", plan.batches);
  out += Line("program", plan.runtime);
  out += Line("total", plan.total());
  return out;
}

int64_t UsedMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssAnon:", 0) != 0) continue;
    std::istringstream fields(line.substr(8));
    int64_t kib = 0;
    fields >> kib;
    return kib * 1024;
  }
  return 0;
}

}  // namespace cria::trainer
