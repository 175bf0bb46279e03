// Steps of training in many layouts against one rank: losses, gradient norms and weights within
// rounding, and to the bit in invariant numerics; FP8 gathers against bf16 ones; the same weights
// on all ranks that hold them.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/str.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/llama.h"
#include "model/parallel/context_parallel.h"
#include "model/parallel/groups.h"
#include "tests/support/comm_ranks.h"
#include "tests/unit/model/llama/tiny_model.h"
#include "tests/unit/model/parallel/every_rank.h"
#include "trainer/optimizer/adamw.h"

namespace cria::model {
namespace {

constexpr int64_t kTime = 48, kBatch = 4;
constexpr int kSteps = 3;

// Twelve heads over three kv heads, an odd vocabulary, four layers.
LlamaConfig ConfigOf(bool tied) {
  LlamaConfig config = TinyConfig();
  config.layers = 4;
  config.dim = 48;
  config.heads = 12;
  config.kv_heads = 3;
  config.head_dim = 4;
  config.ffn = 72;
  config.vocab = 131;
  config.tied_head = tied;
  return config;
}

struct Case {
  Layout layout;
  Precision precision = Precision::kFp32;
  bool tied = false;
  bool invariant = false;
  bool fp8_gather = false;
  Recompute recompute = Recompute::kNone;
  int64_t micro_batch = 1;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << Name(c.layout) << " " << PrecisionName(c.precision) << (c.invariant ? " invariant" : "");
}

// A sequence of the global batch as this rank has it, its rows in the order of its chunks.
OwnedBatch RowsOf(const OwnedBatch& whole, const Layout& layout, int cp_rank) {
  OwnedBatch own;
  own.batch = whole.batch;
  own.time = whole.time;
  for (const ContextSpan& span : SpansOf(layout.cp, cp_rank, whole.batch, whole.time)) {
    for (int64_t b = 0; b < whole.batch; ++b) {
      const int64_t begin = b * whole.time + span.first, end = begin + span.time;
      const auto take = [&](const std::vector<int32_t>& from, std::vector<int32_t>* to) {
        to->insert(to->end(), from.begin() + begin, from.begin() + end);
      };
      take(whole.tokens, &own.tokens);
      take(whole.targets, &own.targets);
      take(whole.positions, &own.positions);
      take(whole.doc_start, &own.doc_start);
    }
  }
  return own;
}

// By step: this rank's part of the loss, the norm over all ranks; then the weights that it keeps,
// by element of the logical tensors.
struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, std::map<int64_t, float>> weights;
};

class Trainer {
 public:
  Trainer(const Case& c, const Layout& layout, const Groups* groups)
      : case_(c),
        layout_(layout),
        groups_(groups),
        config_(ConfigOf(c.tied)),
        rank_(groups == nullptr ? 0 : groups->world->rank()),
        at_(CoordinatesOf(layout, rank_)),
        micro_batches_(static_cast<int>(kBatch / layout.dp / c.micro_batch)),
        ops_(cpu::NewCpuOps()),
        model_(config_,
               {.layout = layout,
                .rank = rank_,
                .precision = c.precision,
                .recompute = c.recompute,
                .max_batch = c.micro_batch,
                .max_time = kTime,
                .slots = SlotsOf(layout, rank_, micro_batches_),
                .fp8_gather = c.fp8_gather && layout.world_size() > 1,
                .token_grain = c.invariant ? 2 : 0},
               ops_.get(), groups),
        optimizer_(model_.parameters(), {}, ops_.get()) {
    model_.parameters()->Initialize(/*seed=*/5);
  }

  Outcome Run() {
    Outcome outcome;
    for (int step = 0; step < kSteps; ++step) Step(step, &outcome);
    for (const Parameter& parameter : model_.layout().parameters()) {
      const ParameterBuffers::Kept kept = model_.parameters()->KeptOf(parameter);
      for (int64_t i = 0; i < kept.values.num_elements(); ++i) {
        outcome.weights[parameter.name][LogicalElement(parameter, kept.begin + i)] =
            kept.values.f32()[i];
      }
    }
    return outcome;
  }

 private:
  void Step(int step, Outcome* outcome) {
    const OwnedBatch global = RandomBatch(config_, kBatch, kTime, static_cast<uint64_t>(70 + step),
                                          /*document=*/11, /*masked=*/6);
    const int64_t share = kBatch / layout_.dp;
    std::vector<OwnedBatch> owned;
    for (int64_t i = at_.dp * share; i < (at_.dp + 1) * share; i += case_.micro_batch) {
      owned.push_back(RowsOf(global.Sequences(i, i + case_.micro_batch), layout_, at_.cp));
    }
    std::vector<TokenBatch> batches;
    for (const OwnedBatch& batch : owned) batches.push_back(batch.view());
    LossSum loss;
    model_.ZeroGradients();
    const float scale = 1.0f / static_cast<float>(global.num_valid());
    ASSERT_TRUE(model_.Train(batches, scale, &loss).ok());
    ASSERT_TRUE(model_.parameters()->FinishGradients().ok());
    const auto norm = optimizer_.Norm();
    ASSERT_TRUE(norm.ok() && norm->finite());
    // Steps that are small beside the weights, as in training: Adam turns the rounding errors of
    // small gradients into whole steps.
    optimizer_.Step(/*lr=*/3e-5, norm->value);
    ASSERT_TRUE(model_.parameters()->GatherWeights().ok());
    const bool skipped = false;
    ASSERT_TRUE(model_.linears()
                    ->EndStep(skipped, groups_ == nullptr ? nullptr : groups_->stage.get())
                    .ok());
    outcome->losses.push_back(at_.tp == 0 ? loss.sum : 0);
    outcome->norms.push_back(norm->value);
  }

  const Case case_;
  const Layout layout_;
  const Groups* const groups_;
  const LlamaConfig config_;
  const int rank_;
  const Coordinates at_;
  const int micro_batches_;
  const std::unique_ptr<Ops> ops_;
  Llama model_;
  trainer::AdamW optimizer_;
};

using Weights = std::map<std::string, std::map<int64_t, float>>;

// One rank's weights against those of the whole: ||a - b|| / ||b||. Single numbers differ by more,
// since Adam divides small gradients by themselves, rounding errors and all.
double Difference(const Weights& part, const Weights& whole) {
  double squares = 0, differences = 0;
  for (const auto& [name, values] : part) {
    for (const auto& [i, value] : values) {
      const double want = whole.at(name).at(i);
      squares += want * want;
      differences += (value - want) * (value - want);
    }
  }
  return std::sqrt(differences / squares);
}

class LayoutsTest : public testing::TestWithParam<Case> {};

TEST_P(LayoutsTest, TrainAsOneRankDoes) {
  const Case& c = GetParam();
  // An FP8 gather is compared with the same layout without it, to the bit.
  Case plain = c;
  plain.fp8_gather = false;
  const bool exact = c.invariant || c.fp8_gather;
  const double bound = exact ? 0 : c.precision == Precision::kFp32 ? 1e-6 : 2e-3;
  const Outcome alone = Trainer(plain, Layout{}, nullptr).Run();

  std::mutex mu;
  std::vector<double> losses(kSteps);
  std::map<std::string, std::map<int64_t, float>> all;
  RunRankThreads({.ranks = c.layout.world_size()}, [&](comm::Communicator& world) {
    StatusOr<Groups> groups = MakeGroups(c.layout, ConfigOf(c.tied), &world);
    ASSERT_TRUE(groups.ok()) << groups.status();
    const Outcome mine = Trainer(c, c.layout, &*groups).Run();
    Outcome want = alone;
    if (c.fp8_gather) want = Trainer(plain, c.layout, &*groups).Run();
    std::lock_guard<std::mutex> lock(mu);
    for (int step = 0; step < kSteps; ++step) {
      const auto s = static_cast<size_t>(step);
      losses[s] += mine.losses[s];
      EXPECT_LE(std::abs(mine.norms[s] / want.norms[s] - 1), bound) << "step " << step;
    }
    EXPECT_LE(Difference(mine.weights, want.weights), bound);
    for (const auto& [name, values] : mine.weights) {
      for (const auto& [i, value] : values) {
        // All ranks that hold a number hold the same bits.
        const auto [at, is_new] = all[name].emplace(i, value);
        ASSERT_TRUE(is_new || at->second == value) << name << " " << i;
      }
    }
  });
  for (size_t step = 0; step < kSteps; ++step) {
    if (c.fp8_gather) break;
    EXPECT_LE(std::abs(losses[step] / alone.losses[step] - 1), bound) << "step " << step;
  }
  for (const auto& [name, values] : alone.weights) {
    EXPECT_EQ(all[name].size(), values.size()) << name;
  }
}

std::vector<Layout> Layouts() {
  return {{.tp = 2},
          {.cp = 2},
          {.cp = 3},
          {.cp = 4},
          {.dp = 2, .shard = Shard::kOptimizer},
          {.dp = 4, .shard = Shard::kGradients},
          {.dp = 4, .shard = Shard::kWeights},
          {.cp = 2, .dp = 2, .shard = Shard::kWeights},
          {.tp = 3, .dp = 2, .shard = Shard::kGradients},
          {.tp = 6, .shard = Shard::kNone},
          {.tp = 2, .cp = 2, .pp = 2},
          {.tp = 3, .pp = 2, .pp_chunks = 2},
          {.tp = 2, .pp = 2, .dp = 2, .shard = Shard::kWeights},
          {.tp = 12}};
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Layout& layout : Layouts()) {
    if (!CheckLayout(layout, ConfigOf(false), kTime, "").ok()) continue;
    cases.push_back({.layout = layout, .tied = layout.tp == 3});
    cases.push_back({.layout = layout, .tied = layout.tp != 3, .invariant = true});
  }
  // bf16 rounds partial sums before they meet: the bound is wider.
  cases.push_back({.layout = {.tp = 3, .cp = 2}, .precision = Precision::kBf16});
  cases.push_back({.layout = {.tp = 3}, .recompute = Recompute::kSelective, .micro_batch = 2});
  cases.push_back({.layout = {.tp = 3, .cp = 2}, .invariant = true, .recompute = Recompute::kFull});
  for (const Layout& layout : {Layout{.dp = 4, .shard = Shard::kWeights},
                               Layout{.tp = 3, .dp = 2, .shard = Shard::kWeights}}) {
    cases.push_back({.layout = layout, .precision = Precision::kFp8Tensorwise, .fp8_gather = true});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, LayoutsTest, testing::ValuesIn(Cases()));

}  // namespace
}  // namespace cria::model
