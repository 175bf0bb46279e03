#include "trainer/bench/gemm_baseline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/cpu/cpu_ops.h"
#include "model/llama/parameters.h"
#include "trainer/bench/bench_step.h"

namespace cria::trainer {
namespace {

TEST(GemmBaselineTest, AStepsProductsAreSixFlopsAParameterAndToken) {
  for (const bool tied : {true, false}) {
    BenchShape shape = DefaultBenchShape();
    shape.config.tied_head = tied;
    const model::ParameterLayout layout(shape.config);
    EXPECT_EQ(TotalFlops(StepGemms(shape.config, shape.tokens(), false)),
              6.0 * static_cast<double>(layout.num_matmul_elements() * shape.tokens()));
  }
}

TEST(GemmBaselineTest, GroupedQueriesMakeTheFirstProductNarrow) {
  model::LlamaConfig config = DefaultBenchShape().config;
  config.kv_heads = 2;
  const std::vector<GemmShape> shapes = StepGemms(config, 128, false);
  EXPECT_EQ(shapes[0].n, config.QDim() + 2 * 2 * config.HeadDim());
  EXPECT_EQ(shapes[0].m, 128);
  EXPECT_EQ(shapes[0].k, config.dim);
}

TEST(GemmBaselineTest, Bf16KeepsLogitsAndWeightGradientsInFp32) {
  for (const GemmShape& shape : StepGemms(DefaultBenchShape().config, 2048, true)) {
    EXPECT_TRUE(shape.bf16);
    const bool is_weight_gradient = shape.transpose_a;
    const bool is_logits = shape.transpose_b && shape.n == 4096;
    EXPECT_EQ(shape.bf16_out, !is_weight_gradient && !is_logits);
  }
}

TEST(GemmBaselineTest, EachShapeIsTimedWithAnyNumberOfThreads) {
  const auto ops = model::cpu::NewCpuOps();
  GemmBaseline baseline(StepGemms(TinyBenchShape().config, 64, true));
  for (const int threads : {1, 2}) {
    const std::vector<double> seconds = baseline.Run(threads);
    EXPECT_EQ(seconds.size(), baseline.shapes().size());
    EXPECT_GT(*std::min_element(seconds.begin(), seconds.end()), 0);
    EXPECT_GT(baseline.RunStep(threads), 0);
  }
}

}  // namespace
}  // namespace cria::trainer
