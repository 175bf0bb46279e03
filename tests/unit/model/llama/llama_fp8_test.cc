// Low precisions in a whole model: sizes that are no multiple of anything, zero rows, large weights
// that replace small ones, numbers that are not finite.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "model/llama/llama.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::model {
namespace {

class LlamaPrecisionTest : public testing::TestWithParam<Precision> {
 protected:
  LlamaOptions Options(int64_t batch, int64_t time) const {
    return {.precision = GetParam(), .max_batch = batch, .max_time = time};
  }
};

INSTANTIATE_TEST_SUITE_P(Precisions, LlamaPrecisionTest, testing::ValuesIn(AllPrecisions()),
                         [](const testing::TestParamInfo<Precision>& info) {
                           return std::string(PrecisionName(info.param));
                         });

double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

// How far the loss and the gradient's direction may be from fp32's.
struct Nearness {
  double loss;
  double cosine;
};
Nearness NearnessOf(Precision precision) {
  if (precision == Precision::kFp32) return {0, 1 - 1e-9};
  if (precision == Precision::kBf16) return {2e-3, 0.9999};
  return {2e-2, 0.98};
}

TEST_P(LlamaPrecisionTest, IsNearFp32AtOddSizes) {
  LlamaConfig odd = TinyConfig();
  odd.dim = 31;
  odd.head_dim = 10;
  odd.heads = 3;
  odd.kv_heads = 1;
  odd.ffn = 53;
  odd.vocab = 131;
  for (const LlamaConfig& config : {odd, SmallConfig()}) {
    TestModel exact(config, {.max_batch = 3, .max_time = 7}, 1, 3);
    TestModel model(config, Options(3, 7), 1, 3);
    const OwnedBatch batch = RandomBatch(config, 3, 7, 1);
    for (int step = 0; step < 2; ++step) {  // the second one with delayed scaling's history
      const double want = exact.Step(batch).sum;
      const Nearness nearness = NearnessOf(GetParam());
      EXPECT_NEAR(model.Step(batch).sum, want, nearness.loss * want);
      EXPECT_GT(Cosine(model.gradients(), exact.gradients()), nearness.cosine);
      EXPECT_EQ(model->linears()->first_non_finite(), "");
      ASSERT_TRUE(model->linears()->EndStep(false).ok());
    }
  }
}

TEST_P(LlamaPrecisionTest, ZeroRowsGiveFiniteNumbers) {
  TestModel model(TinyConfig(), Options(1, 8));
  OwnedBatch batch = RandomBatch(TinyConfig(), 1, 8, 1);
  batch.tokens = {3, 3, 3, 5, 3, 6, 3, 3};
  std::fill_n(model.WeightsOf("model.embed_tokens.weight") + 3 * 24, 24, 0.0f);  // token 3
  std::fill_n(model.WeightsOf("model.layers.0.mlp.up_proj.weight"), 40 * 24, 0.0f);
  std::fill_n(model.WeightsOf("model.layers.1.self_attn.k_proj.weight"), 5 * 24, 0.0f);
  model->WeightsChanged();
  for (int step = 0; step < 2; ++step) {
    EXPECT_TRUE(std::isfinite(model.Step(batch).sum));
    for (const float g : model.gradients()) ASSERT_TRUE(std::isfinite(g));
    EXPECT_EQ(model->linears()->first_non_finite(), "");
    ASSERT_TRUE(model->linears()->EndStep(false).ok());
  }
}

TEST_P(LlamaPrecisionTest, LoadedWeightsAreNotQuantisedByTheScaleOfRandomOnes) {
  const LlamaConfig config = SmallConfig();
  const OwnedBatch batch = RandomBatch(config, 1, 32, 1);
  TestModel model(config, Options(1, 32), 1, 1);
  model.Step(batch);
  ASSERT_TRUE(model->linears()->EndStep(false).ok());
  TestModel large(config, {.max_batch = 1, .max_time = 32}, 1, 1);
  // A model at its working point, 1000 times larger where a norm undoes the factor.
  std::vector<float> weights = large.weights();
  for (const Parameter& p : large->layout().parameters()) {
    const bool scaled = p.name.find("embed") != std::string::npos ||
                        p.name.find("o_proj") != std::string::npos ||
                        p.name.find("down_proj") != std::string::npos;
    for (int64_t i = 0; i < p.num_elements(); ++i) {
      if (scaled) weights[static_cast<size_t>(p.offset + i)] *= 1000;
    }
  }
  large.SetWeights(weights);
  model.SetWeights(weights);
  model->linears()->Reset();
  const double want = large.Step(batch).sum;
  EXPECT_NEAR(model.Step(batch).sum, want, NearnessOf(GetParam()).loss * want);
  EXPECT_GT(Cosine(model.gradients(), large.gradients()), NearnessOf(GetParam()).cosine);
}

double SumOfSquares(TestModel* model) { return model->ops()->SumOfSquares((*model)->gradients()); }

// One NaN or infinity anywhere must show in the loss, in the norm of the gradients, or, where 8
// bits would have hidden it, by name.
TEST_P(LlamaPrecisionTest, NonFiniteWeightsShowUp) {
  const OwnedBatch batch = RandomBatch(TinyConfig(), 1, 8, 1);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const ParameterLayout layout(TinyConfig());
    for (const Parameter& p : layout.parameters()) {
      TestModel model(TinyConfig(), Options(1, 8));
      // The embedding is read where its row is a token.
      const int64_t at = p.kind == ParameterKind::kEmbedding ? batch.tokens[0] * 24 + 1 : 1;
      model.WeightsOf(p.name)[at] = bad;
      model->WeightsChanged();
      const LossSum loss = model.Step(batch);
      const bool shown = !std::isfinite(loss.sum) || !std::isfinite(SumOfSquares(&model)) ||
                         !model->linears()->first_non_finite().empty();
      EXPECT_TRUE(shown) << p.name << " with " << bad << ": loss " << loss.sum;
    }
  }
}

TEST_P(LlamaPrecisionTest, NamesTheFirstLinearOperandThatIsNotFinite) {
  if (!IsFp8(GetParam())) GTEST_SKIP() << "only 8 bits hide infinities";
  const OwnedBatch batch = RandomBatch(TinyConfig(), 1, 8, 1);
  const float inf = std::numeric_limits<float>::infinity();
  const auto first = [&](const std::string& parameter, float grad_scale) {
    TestModel model(TinyConfig(), Options(1, 8));
    if (!parameter.empty()) model.WeightsOf(parameter)[batch.tokens[0] * 24] = inf;
    model->WeightsChanged();
    model->ZeroGradients();
    model->ForwardBackward(batch.view(), grad_scale);
    return model->linears()->first_non_finite();
  };
  EXPECT_EQ(first("", 1), "");
  EXPECT_EQ(first("", inf), "model.layers.1.down.gradient");
  EXPECT_EQ(first("model.embed_tokens.weight", 1), "model.layers.0.qkv.input");
  EXPECT_EQ(first("model.layers.0.mlp.gate_proj.weight", 1), "model.layers.0.gate_up.weight");
  EXPECT_EQ(first("model.layers.1.mlp.down_proj.weight", 1), "model.layers.1.down.weight");
}

}  // namespace
}  // namespace cria::model
