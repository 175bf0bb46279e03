// What is planned for a rank is, to the byte, what its model and its optimizer hold: every kind of
// sharding over 2 and 4 ranks, in fp32 and in bf16, and with fixed-point gradients.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/str.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/llama.h"
#include "model/parallel/groups.h"
#include "model/parallel/mesh.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/tiny_run.h"
#include "trainer/loop/memory.h"
#include "trainer/loop/rank_options.h"
#include "trainer/optimizer/adamw.h"

namespace cria::trainer {
namespace {

// Buffers begin at a cache line.
int64_t Aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct Sizes {
  int64_t layer = 0, vocabulary = 0;  // elements of the largest block of each kind
  int64_t updated = 0;                // of what one rank updates
};

Sizes SizesOf(const model::ParameterBuffers& buffers) {
  Sizes sizes = {.updated = buffers.parts().updated().num_elements()};
  for (const model::ParameterBlock& block : buffers.layout().blocks()) {
    if (block.kind == model::ParameterBlock::Kind::kNorms) continue;
    int64_t& size =
        block.kind == model::ParameterBlock::Kind::kLayer ? sizes.layer : sizes.vocabulary;
    size = std::max(size, block.size());
  }
  return sizes;
}

// Sharding, ranks, and a precision or "invariant" numerics.
using Case = std::tuple<std::string, int, std::string>;

class RankMemoryTest : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Shards, RankMemoryTest,
    testing::Combine(testing::Values("none", "optimizer", "gradients", "weights"),
                     testing::Values(2, 4), testing::Values("fp32", "bf16", "invariant")),
    [](const auto& info) {
      return StrCat(std::get<0>(info.param), "_dp", std::get<1>(info.param), "_",
                    std::get<2>(info.param));
    });

TEST_P(RankMemoryTest, BuffersAreThePlans) {
  const auto& [shard, dp, kind] = GetParam();
  const bool invariant = kind == "invariant", bf16 = kind == "bf16";
  TrainConfig config = TinyConfig(TinyData());
  if (bf16) config.precision = "bf16";
  if (invariant) config.numerics = "invariant";
  config.parallel.dp = dp;
  config.parallel.shard = shard;
  const model::Layout layout = config.Layout();
  const int64_t gradient = invariant ? 8 : 4;
  const int64_t operand = bf16 ? 2 : 4;
  const bool divides_gradients = shard == "gradients" || shard == "weights";
  RunRankThreads({.ranks = dp}, [&](comm::Communicator& world) {
    SCOPED_TRACE(StrCat("rank ", world.rank()));
    const auto ops = model::cpu::NewCpuOps();
    const RankPlan plan = PlanRank(config, layout, world.rank(), *ops);
    const auto groups = model::MakeGroups(layout, config.model, &world);
    ASSERT_TRUE(groups.ok()) << Message(groups.status());
    model::Llama model(config.model, RankOptions(config, layout, world.rank()), ops.get(),
                       &*groups);
    const model::ParameterBuffers& buffers = *model.parameters();
    AdamW optimizer(model.parameters(), config.AdamW(), ops.get());
    const Sizes sizes = SizesOf(buffers);

    EXPECT_EQ(plan.optimizer, Aligned(optimizer.m().bytes()) + Aligned(optimizer.v().bytes()));
    EXPECT_EQ(plan.optimizer, 2 * Aligned(4 * sizes.updated));
    EXPECT_EQ(plan.model.weights, Aligned(buffers.weights().bytes()));
    // Blocks on their way, whole: two layers in turns, and the vocabulary's.
    int64_t gradients = Aligned(buffers.gradients().bytes());
    if (divides_gradients) {
      gradients += 2 * Aligned(gradient * sizes.layer) + Aligned(gradient * sizes.vocabulary);
    }
    if (invariant) gradients += Aligned(4 * sizes.updated);
    EXPECT_EQ(plan.model.gradients, gradients);
    int64_t operands = 0;
    if (shard == "weights") {
      operands = 2 * Aligned(operand * sizes.layer) + Aligned(4 * sizes.vocabulary);
    } else if (bf16) {
      operands = Aligned(operand * buffers.layout().num_elements());
    }
    EXPECT_EQ(plan.model.compute_copy, operands);

    // What is divided is divided by all ranks.
    const int64_t whole = buffers.layout().num_elements();
    const auto expect_part = [&](int64_t elements, bool divided) {
      const auto expected = static_cast<double>(divided ? whole / dp : whole);
      // Norms are whole everywhere, and blocks' parts rounded up.
      EXPECT_NEAR(static_cast<double>(elements), expected, 0.02 * static_cast<double>(whole));
    };
    expect_part(sizes.updated, shard != "none");
    expect_part(buffers.gradients().num_elements(), divides_gradients);
    expect_part(buffers.weights().num_elements(), shard == "weights");
  });
}

}  // namespace
}  // namespace cria::trainer
