#include "trainer/loop/memory.h"

#include <gtest/gtest.h>

#include "base/str.h"
#include "model/cpu/cpu_ops.h"

namespace cria::trainer {
namespace {

TrainConfig Load(const std::string& name, const std::vector<std::string>& overrides = {}) {
  return LoadTrainConfig(name, overrides).value();
}

class MemoryTest : public testing::Test {
 protected:
  const std::unique_ptr<model::Ops> ops_ = model::cpu::NewCpuOps();
};

// The counts that Meta's checkpoints have (arXiv 2407.21783, table 3, and the files themselves).
TEST_F(MemoryTest, PlansLlama3WithoutAllocatingIt) {
  const int64_t before = UsedMemoryBytes();
  for (const auto& [name, parameters] :
       {std::pair("llama3_8b", 8'030'261'248), std::pair("llama3_70b", 70'553'706'496),
        std::pair("llama3_405b", 405'853'388'800)}) {
    const TrainConfig config = Load(name);
    const JobPlan plan = PlanJob(config, *ops_);
    EXPECT_EQ(plan.num_parameters, parameters) << name;
    EXPECT_NEAR(static_cast<double>(plan.model.weights), 4.0 * static_cast<double>(parameters),
                1e5);
    EXPECT_NEAR(static_cast<double>(plan.optimizer), 8.0 * static_cast<double>(parameters), 1e5);
    EXPECT_NEAR(static_cast<double>(plan.model.compute_copy), 2.0 * static_cast<double>(parameters),
                1e5);
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
    return PlanJob(Load("default", overrides), *ops_).model.activations;
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
  const JobPlan plan = PlanJob(Load("default"), *ops_);
  EXPECT_EQ(plan.total(), plan.model.weights + plan.model.compute_copy + plan.model.gradients +
                              plan.model.activations + plan.model.workspace + plan.optimizer +
                              plan.batches + plan.runtime);
  EXPECT_GT(plan.runtime, 0);
  EXPECT_EQ(plan.model.gradients, plan.model.weights);
}

TEST_F(MemoryTest, UsedMemoryFollowsWhatIsTouched) {
  const int64_t before = UsedMemoryBytes();
  std::vector<char> block(32 << 20, 1);
  EXPECT_NEAR(static_cast<double>(UsedMemoryBytes() - before), 32 << 20, 1 << 20);
  EXPECT_EQ(block[5], 1);
}

}  // namespace
}  // namespace cria::trainer
