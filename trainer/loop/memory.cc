#include "trainer/loop/memory.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/str.h"
#include "model/parallel/parameter_parts.h"
#include "model/parallel/pipeline.h"
#include "model/parallel/pipeline_schedule.h"
#include "trainer/loop/rank_batches.h"
#include "trainer/loop/rank_options.h"
#include "trainer/optimizer/adamw.h"

namespace cria::trainer {
namespace {

// What oneDNN's generated kernels and packing buffers, OpenMP's stacks and the writers of a run add
// to a process after the plan is made; measured, and small beside any model worth planning.
constexpr int64_t kLaterRuntimeBytes = 5 << 20;
// Through which groups move what lies in private memory, the activations of tp, cp and pp
// (comm/shm/windows.h); measured too.
constexpr int64_t kStagingBytes = 2 << 20;

// Ids, targets, positions and document starts.
int64_t BatchBytes(int64_t tokens) { return tokens * 4 * 4; }

// Sequences of the largest step that a data-parallel rank reads.
int64_t LargestShare(const TrainConfig& config, const model::Layout& layout) {
  int64_t share = 1;
  for (const int64_t batch : BatchSizes(config)) {
    share = std::max(share, ShareOfBatch(0, batch, layout.dp, /*dp_rank=*/0).count);
  }
  return share;
}

int NumMicroBatchesOf(const TrainConfig& config, const model::Layout& layout) {
  return NumMicroBatches(config.train.batch, layout.dp, config.train.micro_batch);
}

std::string Header(const TrainConfig& config, const JobPlan& plan) {
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
      static_cast<long long>(RankOptions(config, plan.layout, 0).max_batch),
      config.precision.c_str(), config.train.recompute.c_str());
  out += StrFormat(
      "flops a token, forward and backward: %s with causal attention counted, %s with full\n",
      HumanCount(plan.flops.matmul + plan.flops.attention_causal).c_str(),
      HumanCount(plan.flops.matmul + plan.flops.attention_full).c_str());
  return out;
}

// What each axis divides, where it has more than one rank.
std::string DescribeLayout(const JobPlan& plan) {
  const model::Layout& layout = plan.layout;
  if (layout.world_size() == 1) return "";
  std::string out = StrFormat("layout: %s, %d ranks; %d micro-batch%s a step", Name(layout).c_str(),
                              layout.world_size(), plan.num_micro_batches,
                              plan.num_micro_batches == 1 ? "" : "es");
  if (layout.pp > 1) {
    out += StrFormat(", the pipeline idles %.1f %% of its work", 100 * plan.bubble);
  }
  out += '\n';
  const auto line = [&](const char* axis, int size, const char* what) {
    if (size > 1) out += StrFormat("  %s %-5d %s\n", axis, size, what);
  };
  line("tp", layout.tp, "divides heads, channels and vocabulary, and the rows of the residual");
  line("cp", layout.cp, "divides sequences");
  line("pp", layout.pp, "divides layers");
  line("dp", layout.dp, "divides the batch");
  const char* const sharded[] = {"", "the optimizer's state; each keeps all fp32 weights",
                                 "gradients and the optimizer's state; each keeps all fp32 weights",
                                 "weights, gradients and the optimizer's state"};
  if (layout.shard != model::Shard::kNone && layout.replicas() > 1) {
    out += StrFormat("  %d ranks with the same weights divide %s\n", layout.replicas(),
                     sharded[static_cast<size_t>(layout.shard)]);
  }
  return out;
}

// First stage, the largest of those between, last.
std::vector<const RankPlan*> Columns(const JobPlan& plan) {
  const auto by_total = [](const RankPlan& a, const RankPlan& b) { return a.total() < b.total(); };
  const std::vector<RankPlan>& stages = plan.stages;
  std::vector<const RankPlan*> columns = {&stages.front()};
  if (stages.size() > 2) {
    columns.push_back(&*std::max_element(stages.begin() + 1, stages.end() - 1, by_total));
  }
  if (stages.size() > 1) columns.push_back(&stages.back());
  return columns;
}

// One line of the table, a value for each column.
using Value = std::function<std::string(const RankPlan&)>;
// A line "<key> <number> kB" of one of the kernel's files; 0 where there is none.
int64_t KibOf(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    std::istringstream fields(line.substr(key.size()));
    int64_t kib = 0;
    fields >> kib;
    return kib;
  }
  return 0;
}

std::string Line(const char* what, const std::vector<const RankPlan*>& columns,
                 const Value& value) {
  std::string line = StrFormat("  %-22s", what);
  for (const RankPlan* rank : columns) line += StrFormat(" %12s", value(*rank).c_str());
  return line + "\n";
}

std::string DescribeRanks(const JobPlan& plan) {
  const std::vector<const RankPlan*> columns = Columns(plan);
  const auto bytes = [&](const char* what, const std::function<int64_t(const RankPlan&)>& of) {
    return Line(what, columns,
                [&](const RankPlan& rank) { return HumanBytes(static_cast<double>(of(rank))); });
  };
  std::string out = "memory:\n";
  if (columns.size() > 1) {
    out = Line("memory of a rank", columns, [&](const RankPlan& rank) {
      return StrCat("stage ", model::CoordinatesOf(plan.layout, rank.rank).pp);
    });
    out += Line("layers", columns, [](const RankPlan& r) { return StrCat(r.num_layers); });
    out += Line("micro-batches held", columns,
                [](const RankPlan& r) { return StrCat(r.max_in_flight); });
  }
  if (plan.layout.world_size() > 1) {
    out += Line("parameters", columns, [](const RankPlan& r) {
      return HumanCount(static_cast<double>(r.num_parameters));
    });
  }
  out += bytes("weights (fp32)", [](const RankPlan& r) { return r.model.weights; });
  out += bytes("weights (operands)", [](const RankPlan& r) { return r.model.compute_copy; });
  out += bytes("gradients", [](const RankPlan& r) { return r.model.gradients; });
  out += bytes("optimizer (fp32 m, v)", [](const RankPlan& r) { return r.optimizer; });
  out += bytes("activations", [](const RankPlan& r) { return r.model.activations; });
  out += bytes("workspace", [](const RankPlan& r) { return r.model.workspace; });
  out += bytes("batches", [](const RankPlan& r) { return r.batches; });
  out += bytes("program", [&](const RankPlan&) { return plan.runtime; });
  out += bytes("total", [&](const RankPlan& r) { return r.total() + plan.runtime; });
  if (columns.size() > 1) {
    const RankPlan& largest = plan.largest();
    out += StrFormat("largest: rank %d (stage %d), %s\n", largest.rank,
                     model::CoordinatesOf(plan.layout, largest.rank).pp,
                     HumanBytes(static_cast<double>(plan.total())).c_str());
  }
  return out;
}

}  // namespace

const RankPlan& JobPlan::largest() const {
  return *std::max_element(stages.begin(), stages.end(), [](const RankPlan& a, const RankPlan& b) {
    return a.total() < b.total();
  });
}

RankPlan PlanRank(const TrainConfig& config, const model::Layout& layout, int rank,
                  const model::Ops& ops) {
  const model::LlamaOptions options = RankOptions(config, layout, rank);
  const model::Coordinates at = model::CoordinatesOf(layout, rank);
  const model::ModelSlice slice = model::SliceOf(layout, config.model, rank);
  const model::ParameterLayout parameters(config.model, slice);
  const model::ParameterParts parts(parameters, layout.shard, layout.replicas(),
                                    at.cp + layout.cp * at.dp);
  RankPlan plan = {.rank = rank,
                   .num_layers = slice.num_layers(),
                   .num_parameters = parameters.num_elements(),
                   .max_in_flight = options.slots,
                   .model = model::Llama::Plan(config.model, options, ops),
                   .optimizer = AdamW::StateBytes(parts)};
  const int64_t share = LargestShare(config, layout);
  // What was read, and of it this rank's rows with a sequence in place of each missing one.
  plan.batches =
      BatchBytes(share * config.train.seq) +
      BatchBytes((share + NumMicroBatchesOf(config, layout)) * config.train.seq / layout.cp);
  return plan;
}

JobPlan PlanJob(const TrainConfig& config, const model::Layout& layout, const model::Ops& ops) {
  JobPlan plan = {.layout = layout};
  for (int pp = 0; pp < layout.pp; ++pp) {
    // Parts are rounded up: rank 0 of every other axis has the most.
    plan.stages.push_back(PlanRank(config, layout, model::RankAt(layout, {.pp = pp}), ops));
  }
  plan.num_micro_batches = NumMicroBatchesOf(config, layout);
  const model::PipelineShape shape = model::ShapeOf(layout);
  plan.bubble = model::Simulate(shape, plan.num_micro_batches,
                                model::MakeSchedule(shape, plan.num_micro_batches))
                    .bubble;
  plan.runtime = UsedMemoryBytes() + kLaterRuntimeBytes;
  if (layout.tp * layout.cp * layout.pp > 1) plan.runtime += kStagingBytes;
  plan.num_parameters = model::ParameterLayout(config.model).num_elements();
  plan.flops = model::CountFlops(config.model, config.train.seq);
  return plan;
}

std::string DescribePlan(const TrainConfig& config, const JobPlan& plan) {
  return Header(config, plan) + DescribeLayout(plan) + DescribeRanks(plan);
}

int64_t UsedMemoryBytes() {
  return KibOf("/proc/self/status", "RssAnon:") * 1024 +
         KibOf("/proc/self/smaps_rollup", "Pss_Shmem:") * 1024;
}

StatusOr<MemoryUse> LargestUse(int64_t planned, comm::Communicator* world) {
  MemoryUse most = {.planned = planned, .used = UsedMemoryBytes()};
  if (world == nullptr) return most;
  const std::array<int64_t, 2> own = {planned, most.used};
  std::vector<std::array<int64_t, 2>> all(static_cast<size_t>(world->size()));
  CRIA_RETURN_IF_ERROR(world
                           ->AllGather({.input = own.data(),
                                        .output = all.data(),
                                        .count = static_cast<int64_t>(own.size()),
                                        .dtype = comm::DataType::kInt64})
                           .Wait());
  most.used = -1;
  for (int rank = 0; rank < world->size(); ++rank) {
    const auto [plan, used] = all[static_cast<size_t>(rank)];
    if (used > most.used) most = {.rank = rank, .planned = plan, .used = used};
  }
  return most;
}

}  // namespace cria::trainer
