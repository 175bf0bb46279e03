// Steps of training in many layouts against one rank: losses, gradient norms and weights within
// rounding, and to the bit in invariant numerics; FP8 gathers against bf16 ones; the same weights
// on all ranks that hold them.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/model/llama/tiny_model.h"
#include "tests/unit/model/parallel/layout_trainer.h"

namespace cria::model {
namespace {

constexpr int64_t kTime = 48, kBatch = 4;

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

LayoutJob JobOf(const Case& c) {
  const LlamaConfig config = ConfigOf(c.tied);
  return {.layout = c.layout,
          .config = config,
          .batch_of =
              [config](int step) {
                return RandomBatch(config, kBatch, kTime, static_cast<uint64_t>(70 + step),
                                   /*document=*/11, /*masked=*/6);
              },
          .micro_batch = c.micro_batch,
          .precision = c.precision,
          .invariant = c.invariant,
          .fp8_gather = c.fp8_gather,
          .recompute = c.recompute};
}

class LayoutsTest : public testing::TestWithParam<Case> {};

TEST_P(LayoutsTest, TrainAsOneRankDoes) {
  const Case& c = GetParam();
  const LayoutJob job = JobOf(c);
  // An FP8 gather is compared with the same layout without it, to the bit.
  LayoutJob plain = job;
  plain.fp8_gather = false;
  const LayoutOutcome want = c.fp8_gather ? TrainOnRanks(plain) : TrainAlone(plain);
  const LayoutOutcome got = TrainOnRanks(job);
  const bool exact = c.invariant || c.fp8_gather;
  const double bound = exact ? 0 : c.precision == Precision::kFp32 ? 1e-6 : 2e-3;
  for (size_t step = 0; step < want.losses.size(); ++step) {
    EXPECT_LE(std::abs(got.losses[step] / want.losses[step] - 1), bound) << "step " << step;
    EXPECT_LE(std::abs(got.norms[step] / want.norms[step] - 1), bound) << "step " << step;
  }
  EXPECT_LE(Difference(got.weights, want.weights), bound);
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
  cases.push_back({.layout = {.tp = 12}, .precision = Precision::kBf16});
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
