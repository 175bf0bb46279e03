// The whole model against its own loss in double: logits, losses, and every parameter's gradient by
// finite differences; and what must hold between gradients of related batches.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/llama/llama.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::model {
namespace {

struct Variant {
  std::string name;
  LlamaConfig config;
  float z_loss = 0;
};

std::vector<Variant> Variants() {
  LlamaConfig untied = TinyConfig();
  untied.tied_head = false;
  untied.kv_heads = 1;
  untied.layers = 1;
  LlamaConfig mha = TinyConfig();
  mha.kv_heads = mha.heads;
  mha.layers = 1;
  return {{"TiedGroupedQuery", TinyConfig()},
          {"UntiedOneKvHeadZLoss", untied, 0.01f},
          {"TiedAllHeads", mha}};
}

class LlamaGradientTest : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Variants, LlamaGradientTest, testing::ValuesIn(Variants()),
                         [](const testing::TestParamInfo<Variant>& info) {
                           return info.param.name;
                         });

TEST_P(LlamaGradientTest, EqualsFiniteDifferencesOfTheLossInDouble) {
  const auto& [name, config, z_loss] = GetParam();
  TestModel model(config, {.max_batch = 2, .max_time = 16, .z_loss = z_loss});
  const OwnedBatch batch = RandomBatch(config, 2, 13, 3, /*document=*/5, /*masked=*/4);
  model->ZeroGradients();
  const LossSum loss = model->ForwardBackward(batch.view(), 1.0f);
  const std::vector<float> gradients = model.gradients();
  const std::vector<float> weights = model.weights();
  const std::vector<double> exact(weights.begin(), weights.end());
  EXPECT_EQ(loss.num_valid, batch.num_valid());
  EXPECT_LT(loss.num_valid, 26);
  const double want_loss = ReferenceLoss(config, exact, batch);
  EXPECT_NEAR(loss.sum, want_loss, 1e-6 * want_loss);

  const std::vector<double> want_logits = ReferenceLogits(config, exact, batch);
  EXPECT_LT(RelativeError(model.Logits(batch),
                          std::vector<float>(want_logits.begin(), want_logits.end())),
            3e-6);

  for (const Parameter& p : model->layout().parameters()) {
    float largest = 0;
    for (int64_t i = 0; i < p.num_elements(); ++i) {
      largest = std::max(largest, std::fabs(gradients[static_cast<size_t>(p.offset + i)]));
    }
    EXPECT_GT(largest, 1e-3f) << p.name;
    // A few elements of each tensor, a stride apart that visits all columns.
    const int64_t stride = std::max<int64_t>(1, p.num_elements() / 12) | 1;
    for (int64_t i = 0; i < p.num_elements(); i += stride) {
      const auto at = static_cast<size_t>(p.offset + i);
      const auto moved = [&](double by) {
        std::vector<double> changed = exact;
        changed[at] += by;
        return ReferenceLoss(config, changed, batch, z_loss);
      };
      constexpr double kStep = 1e-3;
      const double numeric =
          (8 * (moved(kStep) - moved(-kStep)) - (moved(2 * kStep) - moved(-2 * kStep))) /
          (12 * kStep);
      EXPECT_NEAR(gradients[at], numeric, 5e-6 * largest + 1e-7) << p.name << " element " << i;
    }
  }
}

TEST(LlamaAccumulationTest, MicroBatchesOfUnequalCountsEqualOneBigBatch) {
  const LlamaConfig config = SmallConfig();
  OwnedBatch batch = RandomBatch(config, 4, 33, 5, 0, 3);
  // The first sequence counts three tokens, the second all of them.
  for (int64_t t = 3; t < 33; ++t) batch.targets[static_cast<size_t>(t)] = -100;
  for (int64_t t = 33; t < 66; ++t) batch.targets[static_cast<size_t>(t)] = 7;
  const float scale = 1.0f / static_cast<float>(batch.num_valid());

  TestModel big(config, {.max_batch = 4, .max_time = 33});
  const LossSum whole = big.Step(batch);
  TestModel small(config, {.max_batch = 2, .max_time = 33});
  small->ZeroGradients();
  LossSum parts;
  const int64_t cuts[] = {0, 1, 2, 4};
  for (int i = 0; i < 3; ++i) {
    const OwnedBatch part = batch.Sequences(cuts[i], cuts[i + 1]);
    const LossSum loss = small->ForwardBackward(part.view(), scale);
    EXPECT_EQ(loss.num_valid, part.num_valid());
    parts.sum += loss.sum;
    parts.num_valid += loss.num_valid;
  }
  EXPECT_EQ(parts.num_valid, whole.num_valid);
  EXPECT_NEAR(parts.sum, whole.sum, 1e-6 * whole.sum);
  EXPECT_LT(RelativeError(small.gradients(), big.gradients()), 2e-6);

  // The mistake that this guards against, an average of averages, would be seen.
  small->ZeroGradients();
  for (int i = 0; i < 3; ++i) {
    const OwnedBatch part = batch.Sequences(cuts[i], cuts[i + 1]);
    small->ForwardBackward(part.view(), 1.0f / (3.0f * static_cast<float>(part.num_valid())));
  }
  EXPECT_GT(RelativeError(small.gradients(), big.gradients()), 0.1);
}

TEST(LlamaTiedHeadTest, OneStorageWhoseGradientIsTheSumOfBothUses) {
  LlamaConfig config = TinyConfig();
  TestModel tied(config, {.max_batch = 2, .max_time = 16});
  EXPECT_EQ(tied->layout().Find("lm_head.weight"), nullptr);
  EXPECT_EQ(tied->layout().head_block(), tied->layout().embedding_block());
  config.tied_head = false;
  TestModel untied(config, {.max_batch = 2, .max_time = 16});
  EXPECT_EQ(untied->layout().num_elements(),
            tied->layout().num_elements() + config.vocab * config.dim);
  std::vector<float> weights = tied.weights();
  const std::vector<float> embedding(weights.begin(), weights.begin() + config.vocab * config.dim);
  // lm_head comes last but for the norms.
  const int64_t head = untied->layout().Find("lm_head.weight")->offset;
  weights.insert(weights.begin() + head, embedding.begin(), embedding.end());
  untied.SetWeights(weights);

  const OwnedBatch batch = RandomBatch(config, 2, 11, 9);
  EXPECT_EQ(tied.Step(batch).sum, untied.Step(batch).sum);
  std::vector<float> sum = untied.GradientOf("model.embed_tokens.weight");
  const std::vector<float> of_head = untied.GradientOf("lm_head.weight");
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += of_head[i];
  EXPECT_LT(RelativeError(tied.GradientOf("model.embed_tokens.weight"), sum), 1e-6);
}

TEST(LlamaMaskTest, MaskedTokensContributeNothing) {
  const LlamaConfig config = TinyConfig();
  TestModel model(config, {.max_batch = 2, .max_time = 16, .z_loss = 0.1f});
  OwnedBatch batch = RandomBatch(config, 2, 16, 11);
  const OwnedBatch first = batch.Sequences(0, 1);
  for (size_t i = 16; i < 32; ++i) batch.targets[i] = -1;
  const float scale = 1.0f / 16;

  model->ZeroGradients();
  const LossSum masked = model->ForwardBackward(batch.view(), scale);
  const std::vector<float> masked_gradients = model.gradients();
  EXPECT_EQ(masked.num_valid, 16);
  // Any negative target is the same.
  for (size_t i = 16; i < 32; ++i) batch.targets[i] = -100;
  model->ZeroGradients();
  EXPECT_EQ(model->ForwardBackward(batch.view(), scale).sum, masked.sum);
  EXPECT_EQ(model.gradients(), masked_gradients);
  // As if the sequence were not there.
  model->ZeroGradients();
  const LossSum alone = model->ForwardBackward(first.view(), scale);
  EXPECT_NEAR(masked.sum, alone.sum, 1e-6 * alone.sum);
  EXPECT_LT(RelativeError(model.gradients(), masked_gradients), 1e-6);
}

TEST(LlamaMaskTest, AllMaskedGivesZeroLossAndZeroGradients) {
  for (const Precision precision : AllPrecisions()) {
    TestModel model(TinyConfig(),
                    {.precision = precision, .max_batch = 1, .max_time = 8, .z_loss = 0.1f});
    OwnedBatch batch = RandomBatch(TinyConfig(), 1, 8, 11);
    std::fill(batch.targets.begin(), batch.targets.end(), -100);
    model->ZeroGradients();
    const LossSum loss = model->ForwardBackward(batch.view(), 1.0f);
    EXPECT_EQ(loss.sum, 0);
    EXPECT_EQ(loss.num_valid, 0);
    const std::vector<float> gradients = model.gradients();
    EXPECT_EQ(gradients, std::vector<float>(gradients.size(), 0.0f)) << PrecisionName(precision);
    EXPECT_EQ(model->linears()->first_non_finite(), "");
  }
}

TEST(LlamaDocumentTest, PackedDocumentsGiveWhatSeparateSequencesGive) {
  const LlamaConfig config = TinyConfig();
  TestModel model(config, {.max_batch = 3, .max_time = 15});
  const OwnedBatch packed = RandomBatch(config, 1, 15, 13, /*document=*/5);
  OwnedBatch apart = packed;
  apart.batch = 3;
  apart.time = 5;
  std::fill(apart.doc_start.begin(), apart.doc_start.end(), 0);
  EXPECT_LT(RelativeError(model.Logits(packed), model.Logits(apart)), 1e-6);
  const LossSum a = model.Step(packed);
  const std::vector<float> gradients = model.gradients();
  const LossSum b = model.Step(apart);
  EXPECT_NEAR(a.sum, b.sum, 1e-6 * b.sum);
  EXPECT_LT(RelativeError(gradients, model.gradients()), 1e-6);
}

}  // namespace
}  // namespace cria::model
