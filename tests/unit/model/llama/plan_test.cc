// The memory plan: what it says of models that no machine here holds, and that a model uses what
// its plan says.

#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "base/str.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/llama.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::model {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = false;
#endif

// Bytes of the process's own memory that are in use.
int64_t AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("RssAnon:", 0) == 0) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

LlamaConfig Llama3(int64_t layers, int64_t dim, int64_t heads, int64_t ffn) {
  return {.layers = layers,
          .dim = dim,
          .heads = heads,
          .kv_heads = 8,
          .ffn = ffn,
          .vocab = 128256,
          .max_positions = 8192,
          .rope_scaling = {},
          .tied_head = false};
}

TEST(LlamaPlanTest, PlansThePublishedModelsWithoutAllocating) {
  const auto ops = cpu::NewCpuOps();
  const int64_t before = AnonymousBytes();
  struct Model {
    LlamaConfig config;
    int64_t num_parameters;
  };
  for (const auto& [config, n] : {Model{Llama3(32, 4096, 32, 14336), 8'030'261'248},
                                  Model{Llama3(80, 8192, 64, 28672), 70'553'706'496},
                                  Model{Llama3(126, 16384, 128, 53248), 405'853'388'800}}) {
    for (const Precision precision : AllPrecisions()) {
      const LlamaOptions options = {.precision = precision, .max_batch = 4, .max_time = 8192};
      const MemoryPlan plan = Llama::Plan(config, options, *ops);
      EXPECT_EQ(plan.weights, 4 * n);
      EXPECT_EQ(plan.compute_copy, precision == Precision::kFp32 ? 0 : 2 * n);
      EXPECT_EQ(plan.gradients, 4 * n);
      // At least the residual of each layer; the logits of 32,768 rows are never whole.
      const int64_t rows = 4 * 8192;
      EXPECT_GT(plan.activations, config.layers * rows * config.dim * 4);
      EXPECT_GT(plan.workspace, 0);
      EXPECT_EQ(plan.total(), plan.weights + plan.compute_copy + plan.gradients + plan.activations +
                                  plan.workspace);
    }
  }
  if (!kSanitizer) {
    EXPECT_LT(AnonymousBytes() - before, 16 << 20);
  }
}

// Activations by what each policy keeps, counted by hand.
TEST(LlamaPlanTest, RecomputationKeepsWhatItSays) {
  const auto ops = cpu::NewCpuOps();
  LlamaConfig config = SmallConfig();
  const auto activations = [&](Recompute recompute, int64_t layers) {
    config.layers = layers;
    return Llama::Plan(config,
                       {.precision = Precision::kBf16,
                        .recompute = recompute,
                        .max_batch = 2,
                        .max_time = 64},
                       *ops)
        .activations;
  };
  const auto per_layer = [&](Recompute recompute) {
    return activations(recompute, 5) - activations(recompute, 4);
  };
  const int64_t rows = 2 * 64, dim = config.dim, ffn = config.ffn;
  const int64_t qkv = config.QDim() + 2 * config.KvDim();
  const int64_t x = 4 * rows * dim;
  const int64_t cheap = 2 * rows * (dim + dim + ffn);  // two norms' outputs, silu(gate) * up
  const int64_t rest = 4 * rows * dim + 2 * 4 * rows + 2 * rows * (qkv + config.QDim() + 2 * ffn) +
                       4 * rows * config.heads;
  EXPECT_EQ(per_layer(Recompute::kNone), x + rest + cheap);
  EXPECT_EQ(per_layer(Recompute::kSelective), x + rest);
  EXPECT_EQ(per_layer(Recompute::kFull), x);
}

TEST(LlamaPlanTest, InferenceNeedsNoGradientsAndOneLayersActivations) {
  const auto ops = cpu::NewCpuOps();
  LlamaConfig config = SmallConfig();
  LlamaOptions options = {.max_batch = 2, .max_time = 64, .training = false};
  const MemoryPlan two = Llama::Plan(config, options, *ops);
  EXPECT_EQ(two.gradients, 0);
  config.layers = 9;
  EXPECT_EQ(Llama::Plan(config, options, *ops).activations, two.activations);
}

void ExpectUseWithinFivePercentOfThePlan(LlamaOptions options, int64_t time = 128) {
  // By default malloc keeps large blocks for itself once one was freed, as the tests before this
  // one did: what they left behind would be counted here.
  mallopt(M_MMAP_THRESHOLD, 1 << 17);
  const LlamaConfig config = {.layers = 2,
                              .dim = 320,
                              .heads = 5,
                              .kv_heads = 5,
                              .ffn = 880,
                              .vocab = 4096,
                              .max_positions = 256,
                              .rope_scaling = {}};
  options.max_batch = 2;
  options.max_time = time;
  const OwnedBatch batch = RandomBatch(config, 2, time, 1);
  // Libraries load, make their tables and compile kernels of these shapes (3 MB on AVX-512) for a
  // model that is soon gone.
  TestModel(config, options).Step(batch);
  const int64_t before = AnonymousBytes();
  TestModel model(config, options);
  const int64_t planned = Llama::Plan(config, options, *model.ops()).total();
  model.Step(batch);
  ASSERT_TRUE(model->parameters()->FinishGradients().ok());
  const double used = static_cast<double>(AnonymousBytes() - before);
  EXPECT_NEAR(used / static_cast<double>(planned), 1, 0.05)
      << "planned " << HumanBytes(static_cast<double>(planned)) << ", used " << HumanBytes(used);
}

// Products of 256 rows are cut into tiles of 128, those of 300 into two heights, and those of 100
// by their columns: a backend may keep one packed form of each weight, two, or none.
class LlamaPlanUseTest : public testing::TestWithParam<std::tuple<Precision, int64_t>> {};

INSTANTIATE_TEST_SUITE_P(Precisions, LlamaPlanUseTest,
                         testing::Combine(testing::ValuesIn(AllPrecisions()),
                                          testing::Values(50, 128, 150)),
                         [](const auto& info) {
                           return StrCat(PrecisionName(std::get<0>(info.param)), "_time",
                                         std::get<1>(info.param));
                         });

TEST_P(LlamaPlanUseTest, AStepUsesWithinFivePercentOfThePlan) {
  if (kSanitizer) GTEST_SKIP() << "a sanitizer's own memory would be counted as well";
  const auto [precision, time] = GetParam();
  ExpectUseWithinFivePercentOfThePlan({.precision = precision}, time);
}

TEST(LlamaPlanTest, InvariantNumericsUseWithinFivePercentOfThePlan) {
  if (kSanitizer) GTEST_SKIP() << "a sanitizer's own memory would be counted as well";
  ExpectUseWithinFivePercentOfThePlan({.token_grain = 16});
}

}  // namespace
}  // namespace cria::model
