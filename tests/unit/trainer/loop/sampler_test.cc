#include "trainer/loop/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>

#include "base/file.h"
#include "model/cpu/cpu_ops.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"

namespace cria::trainer {
namespace {

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 2.0f, 1.0f};

TEST(ChooseTokenTest, GreedyTakesTheFirstOfTheLargest) {
  for (const double u : {0.0, 0.3, 0.999}) EXPECT_EQ(ChooseToken(kLogits, {}, u), 1);
  EXPECT_EQ(ChooseToken({-3.0f}, {}, 0.5), 0);
}

// The share of [0, 1) that gives each token is its softmax.
TEST(ChooseTokenTest, SamplesEachTokenByItsProbability) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    std::vector<double> shares(kLogits.size());
    constexpr int kDraws = 100000;
    for (int i = 0; i < kDraws; ++i) {
      const double u = (i + 0.5) / kDraws;
      shares[static_cast<size_t>(ChooseToken(kLogits, {.temperature = temperature}, u))] +=
          1.0 / kDraws;
    }
    double total = 0;
    for (const float logit : kLogits) total += std::exp(logit / temperature);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      EXPECT_NEAR(shares[i], std::exp(kLogits[i] / temperature) / total, 2e-5) << i;
    }
  }
}

TEST(ChooseTokenTest, TopKLeavesOutAllOthers) {
  std::set<int32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    seen.insert(ChooseToken(kLogits, {.temperature = 10, .top_k = 3}, i / 1000.0));
  }
  EXPECT_EQ(seen, (std::set<int32_t>{1, 3, 4}));
  // Equal logits: the lower id first.
  EXPECT_EQ(ChooseToken(kLogits, {.temperature = 1, .top_k = 1}, 0.999), 1);
  // More than there are: all.
  EXPECT_EQ(ChooseToken(kLogits, {.temperature = 1, .top_k = 1000}, 0.0), 1);
}

TEST(ChooseTokenTest, NearTemperatureZeroItIsGreedy) {
  const std::vector<float> logits = {0.5f, 2.0f, -1.0f, 2.001f, 1.0f};
  for (const double temperature : {1e-5, 1e-30, 1e-300}) {
    for (const double u : {0.0, 0.5, 0.9999999999}) {
      EXPECT_EQ(ChooseToken(logits, {.temperature = temperature}, u), 3);
    }
  }
}

TEST(ChooseTokenTest, UAtItsEdgesGivesACandidate) {
  const double below_one = std::nextafter(1.0, 0.0);
  EXPECT_EQ(ChooseToken(kLogits, {.temperature = 1}, 0.0), 1);
  EXPECT_EQ(ChooseToken(kLogits, {.temperature = 1}, below_one), 2);
  EXPECT_EQ(ChooseToken(kLogits, {.temperature = 1, .top_k = 2}, below_one), 3);
  // Probabilities that underflow to 0 are never chosen before the end of the line.
  std::vector<float> sharp(1000, -1e9f);
  sharp[500] = 0;
  for (const double u : {0.0, 0.5, below_one}) {
    EXPECT_EQ(ChooseToken(sharp, {.temperature = 1}, u), 500);
  }
}

class SamplerTest : public testing::Test {
 protected:
  SamplerTest()
      : tokenizer_(Tokenizer::Load(JoinPath(TinyData(), "tokenizer.json")).value()),
        ops_(model::cpu::NewCpuOps()),
        model_(TinyConfig(TinyData()).model, {.max_batch = 1, .max_time = 32}, ops_.get()) {
    model::InitializeParameters(model_.layout(), 1, model_.weights());
    for (int64_t i = 0; i < model_.weights().num_elements(); ++i) model_.weights().f32()[i] *= 5;
    model_.WeightsChanged();
  }
  std::vector<std::string> Continue(const SamplerOptions& options, int64_t num_tokens = 12) {
    Sampler sampler(&model_, &tokenizer_, options);
    return sampler.Continue({"the llama", "she", "she"}, num_tokens);
  }

  const Tokenizer tokenizer_;
  const std::unique_ptr<model::Ops> ops_;
  model::Llama model_;
};

TEST_F(SamplerTest, IsAFunctionOfTheSeed) {
  const SamplerOptions options = {.temperature = 1, .seed = 7, .max_time = 32};
  const std::vector<std::string> texts = Continue(options);
  EXPECT_EQ(Continue(options), texts);
  EXPECT_NE(Continue({.temperature = 1, .seed = 8, .max_time = 32}), texts);
  // Each prompt has its own random numbers.
  EXPECT_NE(texts[1], texts[2]);
  EXPECT_TRUE(texts[0].starts_with("the llama")) << texts[0];
}

TEST_F(SamplerTest, GreedyRepeatsForEqualPromptsWhateverTheSeed) {
  const std::vector<std::string> texts = Continue({.seed = 1, .max_time = 32});
  EXPECT_EQ(texts[1], texts[2]);
  EXPECT_EQ(Continue({.seed = 2, .max_time = 32}), texts);
}

TEST_F(SamplerTest, EndsAtMaxTime) {
  const std::vector<std::string> texts = Continue({.temperature = 1, .max_time = 8}, 1000);
  for (const std::string& text : texts) {
    // At most 8 tokens, begin-of-text among them; none is longer than 20 bytes of this text.
    EXPECT_LE(text.size(), 7u * 20) << text;
  }
  // A prompt that fills it already comes back as it is.
  Sampler sampler(&model_, &tokenizer_, {.max_time = 2});
  EXPECT_EQ(sampler.Continue({"the llama waits"}, 5)[0], "the llama waits");
  EXPECT_EQ(sampler.Continue({""}, 0)[0], "");
}

TEST_F(SamplerTest, EveryRecomputationOfThePrefixSeesThePromptOnly) {
  // One token at a time gives what many tokens give.
  const SamplerOptions options = {.max_time = 32};
  const std::string all = Continue(options, 6)[0];
  const std::string first = Continue(options, 1)[0];
  EXPECT_TRUE(all.starts_with(first)) << all << " against " << first;
}

}  // namespace
}  // namespace cria::trainer
