#include "trainer/loop/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/str.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/parameters.h"
#include "model/parallel/parameter_parts.h"
#include "tests/support/comm_ranks.h"

namespace cria::trainer {
namespace {

TrainConfig Load(const std::string& name, const std::vector<std::string>& overrides = {}) {
  return LoadTrainConfig(name, overrides).value();
}

// What one rank would need alone.
const std::vector<std::string> kAlone = {"parallel.tp=1",        "parallel.cp=1",
                                         "parallel.pp=1",        "parallel.dp=1",
                                         "parallel.pp_chunks=1", "parallel.pp_short_ends=false",
                                         "parallel.shard=none"};

class MemoryTest : public testing::Test {
 protected:
  JobPlan Plan(const TrainConfig& config) const { return PlanJob(config, config.Layout(), *ops_); }

  const std::unique_ptr<model::Ops> ops_ = model::cpu::NewCpuOps();
};

// The counts that Meta's checkpoints have (arXiv 2407.21783, table 3, and the files themselves).
TEST_F(MemoryTest, PlansLlama3WithoutAllocatingIt) {
  const int64_t before = UsedMemoryBytes();
  for (const auto& [name, parameters] :
       {std::pair("llama3_8b", 8'030'261'248), std::pair("llama3_70b", 70'553'706'496),
        std::pair("llama3_405b", 405'853'388'800)}) {
    const TrainConfig config = Load(name, kAlone);
    const JobPlan plan = Plan(config);
    const RankPlan& rank = plan.largest();
    EXPECT_EQ(plan.num_parameters, parameters) << name;
    EXPECT_EQ(rank.num_parameters, parameters) << name;
    EXPECT_NEAR(static_cast<double>(rank.model.weights), 4.0 * static_cast<double>(parameters),
                1e5);
    EXPECT_NEAR(static_cast<double>(rank.optimizer), 8.0 * static_cast<double>(parameters), 1e5);
    EXPECT_NEAR(static_cast<double>(rank.model.compute_copy), 2.0 * static_cast<double>(parameters),
                1e6);
    // 6 flops a parameter and token, the embedding's look-up left out.
    const double matmul_parameters = static_cast<double>(parameters - 128256 * config.model.dim);
    EXPECT_NEAR(plan.flops.matmul / (6 * matmul_parameters), 1, 1e-4) << name;
    // 12 layers dim T, or half of it when only the lower triangle counts.
    const double full = 12.0 * static_cast<double>(config.model.layers * config.model.dim) * 8192;
    EXPECT_NEAR(plan.flops.attention_full / full, 1, 1e-3) << name;
    EXPECT_NEAR(plan.flops.attention_causal / full, 0.5, 1e-3) << name;
    const std::string text = DescribePlan(config, plan);
    EXPECT_NE(text.find(StrCat("parameters ", parameters)), std::string::npos) << text;
  }
  EXPECT_LT(UsedMemoryBytes() - before, 64 << 20);
}

TEST_F(MemoryTest, RecomputationAndSmallerBatchesNeedLess) {
  const auto activations = [&](const std::vector<std::string>& overrides) {
    return Plan(Load("default", overrides)).largest().model.activations;
  };
  const int64_t none = activations({"train.recompute=none"});
  const int64_t selective = activations({"train.recompute=selective"});
  const int64_t full = activations({"train.recompute=full"});
  EXPECT_LT(selective, none);
  EXPECT_LT(full, selective);
  EXPECT_LT(activations({"train.micro_batch=4"}), none);
  EXPECT_LT(activations({"precision=bf16"}), none);
  // Accumulation is free.
  EXPECT_EQ(activations({"train.batch=64"}), none);
}

TEST_F(MemoryTest, TheTotalIsTheSumOfItsParts) {
  const JobPlan plan = Plan(Load("default"));
  const RankPlan& rank = plan.largest();
  EXPECT_EQ(rank.total(), rank.model.weights + rank.model.compute_copy + rank.model.gradients +
                              rank.model.activations + rank.model.workspace + rank.optimizer +
                              rank.batches);
  EXPECT_EQ(plan.total(), rank.total() + plan.runtime);
  EXPECT_GT(plan.runtime, 0);
  EXPECT_EQ(rank.model.gradients, rank.model.weights);
}

// The paper's layouts (table 4), and layouts of ours for the smaller models. Every parameter is
// counted by one rank of the replicas' first, and every element of a rank by one of its replicas.
TEST_F(MemoryTest, RanksHoldTheWholeModelOnce) {
  for (const auto& [name, ranks, parameters] :
       {std::tuple("llama3_8b", 128, 8'030'261'248), std::tuple("llama3_70b", 1024, 70'553'706'496),
        std::tuple("llama3_405b", 8192, 405'853'388'800),
        std::tuple("llama3_405b_16k", 16384, 405'853'388'800),
        std::tuple("llama3_405b_long", 16384, 405'853'388'800)}) {
    SCOPED_TRACE(name);
    const TrainConfig config = Load(name);
    const model::Layout layout = config.Layout();
    EXPECT_EQ(layout.world_size(), ranks);
    EXPECT_EQ(Plan(config).num_parameters, parameters);
    int64_t counted = 0;
    for (int pp = 0; pp < layout.pp; ++pp) {
      for (int tp = 0; tp < layout.tp; ++tp) {
        const int rank = model::RankAt(layout, {.tp = tp, .pp = pp});
        const model::ParameterLayout held(config.model, model::SliceOf(layout, config.model, rank));
        for (const model::Parameter& p : held.parameters()) {
          if (!p.counted_elsewhere) counted += p.num_elements();
        }
        EXPECT_EQ(PlanRank(config, layout, rank, *ops_).num_parameters, held.num_elements());
      }
    }
    EXPECT_EQ(counted, parameters);
    const model::ParameterLayout held(config.model, model::SliceOf(layout, config.model, 0));
    int64_t divided = 0;
    for (int replica = 0; replica < layout.replicas(); ++replica) {
      const model::ParameterParts parts(held, layout.shard, layout.replicas(), replica);
      for (int b = 0; b < parts.counted().num_blocks(); ++b) {
        divided += parts.counted().block(b).size();
      }
    }
    EXPECT_EQ(divided, held.num_elements());
  }
}

TEST_F(MemoryTest, ShardingDividesWhatItSays) {
  const auto plan = [&](const std::string& shard) {
    return Plan(Load("llama3_70b", {"parallel.shard=" + shard})).largest();
  };
  const RankPlan none = plan("none"), optimizer = plan("optimizer"), gradients = plan("gradients"),
                 weights = plan("weights");
  const auto expect_divided = [](int64_t part, int64_t whole) {
    // By the 32 replicas, but for norms and the ends of blocks.
    EXPECT_NEAR(static_cast<double>(part), static_cast<double>(whole) / 32,
                static_cast<double>(whole) * 1e-3);
  };
  expect_divided(optimizer.optimizer, none.optimizer);
  EXPECT_EQ(gradients.optimizer, optimizer.optimizer);
  EXPECT_EQ(weights.optimizer, optimizer.optimizer);

  EXPECT_EQ(optimizer.model.gradients, none.model.gradients);
  // Two layers and the vocabulary's matrix are on their way in full.
  const int64_t layer = (8192 * (2 * 8192 + 2 * 1024 + 3 * 28672)) / 8 * 4;
  const int64_t vocabulary = int64_t{128256} * 8192 / 8 * 4;
  expect_divided(gradients.model.gradients - 2 * layer - vocabulary, none.model.gradients);
  EXPECT_EQ(weights.model.gradients, gradients.model.gradients);

  EXPECT_EQ(gradients.model.weights, none.model.weights);
  EXPECT_EQ(gradients.model.compute_copy, none.model.compute_copy);
  expect_divided(weights.model.weights, none.model.weights);
  // Operands of two layers in bf16; the vocabulary's matrix in fp32, since the look-up reads it.
  EXPECT_NEAR(static_cast<double>(weights.model.compute_copy),
              static_cast<double>(layer + vocabulary), 1e6);

  for (const RankPlan* other : {&optimizer, &gradients, &weights}) {
    EXPECT_EQ(other->model.activations, none.model.activations);
  }
}

TEST_F(MemoryTest, EachAxisDividesItsPart) {
  const auto plan = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> all = kAlone;
    all.insert(all.end(), overrides.begin(), overrides.end());
    return Plan(Load("llama3_8b", all));
  };
  const RankPlan alone = plan({}).largest();
  const RankPlan tp = plan({"parallel.tp=8"}).largest();
  EXPECT_NEAR(static_cast<double>(tp.num_parameters), static_cast<double>(alone.num_parameters) / 8,
              1e6);
  EXPECT_LT(tp.model.activations, alone.model.activations / 7);
  const RankPlan cp = plan({"parallel.cp=8"}).largest();
  EXPECT_EQ(cp.num_parameters, alone.num_parameters);
  EXPECT_LT(cp.model.activations, alone.model.activations / 7);
  // The first stage holds as many micro-batches as there are stages: pp divides weights, not
  // activations.
  const JobPlan pp = plan({"parallel.pp=4"});
  EXPECT_EQ(pp.stages.size(), 4u);
  EXPECT_EQ(pp.stages[0].num_layers, 8);
  EXPECT_EQ(pp.stages[0].max_in_flight, 4);
  EXPECT_EQ(pp.stages[3].max_in_flight, 1);
  EXPECT_LT(pp.stages[1].num_parameters, alone.num_parameters / 4);
  EXPECT_GT(pp.stages[0].model.activations, alone.model.activations * 9 / 10);
  EXPECT_LT(pp.stages[3].model.activations, alone.model.activations / 3);
  EXPECT_EQ(&pp.largest(), &pp.stages[0]);
  const RankPlan dp = plan({"parallel.dp=8"}).largest();
  EXPECT_EQ(dp.model.total(), alone.model.total());
  EXPECT_LT(dp.batches, alone.batches);
}

// Optimizer and gradients divided, as in the paper; without what this CPU backend packs for itself.
TEST_F(MemoryTest, The405BFitsTheGpusItWasTrainedOn) {
  constexpr int64_t kH100Bytes = int64_t{81559} << 20;  // of 80 GB, as nvidia-smi has it
  for (const char* name : {"llama3_405b", "llama3_405b_16k", "llama3_405b_long"}) {
    for (const RankPlan& rank : Plan(Load(name)).stages) {
      EXPECT_LT(rank.total() - rank.model.workspace, kH100Bytes) << name << " rank " << rank.rank;
    }
  }
  const RankPlan whole = Plan(Load("llama3_405b", {"parallel.shard=none"})).largest();
  EXPECT_GT(whole.total() - whole.model.workspace, kH100Bytes);
}

TEST_F(MemoryTest, TheTableHasAColumnForEachKindOfRank) {
  const TrainConfig config = Load("llama3_405b");
  const JobPlan plan = Plan(config);
  const std::string text = DescribePlan(config, plan);
  EXPECT_NE(text.find("layout: tp8 cp1 pp16 dp64 shard gradients"), std::string::npos) << text;
  EXPECT_NE(text.find("stage 0      stage 1     stage 15\n"), std::string::npos) << text;
  EXPECT_NE(text.find("64 ranks with the same weights divide gradients and the optimizer's state"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(StrCat("largest: rank ", plan.largest().rank, " (stage ")), std::string::npos)
      << text;
  // One rank: one column and no word of layouts.
  const TrainConfig toy = Load("default");
  const std::string alone = DescribePlan(toy, Plan(toy));
  EXPECT_EQ(alone.find("layout"), std::string::npos) << alone;
  EXPECT_EQ(alone.find("stage"), std::string::npos) << alone;
}

TEST_F(MemoryTest, UsedMemoryFollowsWhatIsTouched) {
  const int64_t before = UsedMemoryBytes();
  std::vector<char> block(32 << 20, 1);
  EXPECT_NEAR(static_cast<double>(UsedMemoryBytes() - before), 32 << 20, 1 << 20);
  EXPECT_EQ(block[5], 1);
}

TEST_F(MemoryTest, TheRankThatUsesMostIsFound) {
  const auto alone = LargestUse(7, nullptr);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->rank, 0);
  EXPECT_EQ(alone->planned, 7);
  EXPECT_GT(alone->used, 0);
  const auto reports = RunRankProcesses({.ranks = 3}, [](comm::Communicator& world) {
    const std::vector<char> block(world.rank() == 1 ? 32 << 20 : 0, 1);
    const auto most = LargestUse(100 + world.rank(), &world);
    if (!most.ok()) return Message(most.status());
    return StrCat("rank ", most->rank, " planned ", most->planned,
                  most->used > (32 << 20) ? " much" : " little");
  });
  for (const RankOutcome& outcome : reports) {
    EXPECT_EQ(outcome.report, "rank 1 planned 101 much");
  }
}

}  // namespace
}  // namespace cria::trainer
