// Sampling against closed forms: the logits are logarithms of chosen probabilities.

#include "trainer/generate/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/rng.h"
#include "base/str.h"

namespace cria::trainer {
namespace {

using Shares = std::map<int32_t, double>;

std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

// 0.4, 0.3, 0.15, 0.1, 0.05, not in order.
const std::vector<float>& Five() {
  static const std::vector<float> logits = LogitsOf({0.15, 0.4, 0.05, 0.3, 0.1});
  return logits;
}

Shares DistributionOf(const std::vector<float>& logits, const SamplingOptions& options,
                      const std::vector<int32_t>& history = {}) {
  TokenSampler sampler;
  const auto candidates = sampler.Distribution(logits, history, options);
  Shares shares;
  if (!candidates.ok()) {
    ADD_FAILURE() << candidates.status();
    return shares;
  }
  for (const auto& c : *candidates) shares[c.id] = c.probability;
  return shares;
}

struct Case {
  std::string name;
  SamplingOptions options;
  Shares expected;
};

class DistributionTest : public testing::TestWithParam<Case> {};

TEST_P(DistributionTest, IsTheClosedForm) {
  const Shares shares = DistributionOf(Five(), GetParam().options);
  ASSERT_EQ(shares.size(), GetParam().expected.size());
  for (const auto& [id, probability] : GetParam().expected) {
    ASSERT_TRUE(shares.contains(id)) << id;
    EXPECT_NEAR(shares.at(id), probability, 1e-6) << id;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, DistributionTest,
    testing::Values(
        Case{"greedy", {}, {{1, 1}}},
        Case{"greedy_ignores_cuts", {.top_k = 3, .top_p = 0.9, .min_p = 0.1}, {{1, 1}}},
        Case{"plain", {.temperature = 1}, {{0, .15}, {1, .4}, {2, .05}, {3, .3}, {4, .1}}},
        // p^(1/T) normalised; T = 1/2 squares: .0225 .16 .0025 .09 .01, sum .285.
        Case{"cold",
             {.temperature = 0.5},
             {{0, .0225 / .285},
              {1, .16 / .285},
              {2, .0025 / .285},
              {3, .09 / .285},
              {4, .01 / .285}}},
        Case{"top_1", {.temperature = 1, .top_k = 1}, {{1, 1}}},
        Case{"top_2", {.temperature = 1, .top_k = 2}, {{1, 4. / 7}, {3, 3. / 7}}},
        Case{"top_k_of_all",
             {.temperature = 1, .top_k = 5},
             {{0, .15}, {1, .4}, {2, .05}, {3, .3}, {4, .1}}},
        Case{"top_k_of_more",
             {.temperature = 1, .top_k = 1000},
             {{0, .15}, {1, .4}, {2, .05}, {3, .3}, {4, .1}}},
        Case{"top_p_0", {.temperature = 1, .top_p = 0}, {{1, 1}}},
        Case{"top_p_within_first", {.temperature = 1, .top_p = 0.39}, {{1, 1}}},
        // The token that reaches p is in.
        Case{"top_p_41", {.temperature = 1, .top_p = 0.41}, {{1, 4. / 7}, {3, 3. / 7}}},
        Case{"top_p_71",
             {.temperature = 1, .top_p = 0.71},
             {{1, .4 / .85}, {3, .3 / .85}, {0, .15 / .85}}},
        Case{"min_p_0.3",  // of 0.4: under 0.12 goes
             {.temperature = 1, .min_p = 0.3},
             {{1, .4 / .85}, {3, .3 / .85}, {0, .15 / .85}}},
        Case{"min_p_1", {.temperature = 1, .min_p = 1}, {{1, 1}}},
        // Top-p sees what top-k left: .4/.7 = .571 is over .5, so one token is enough.
        Case{"top_k_before_top_p", {.temperature = 1, .top_k = 2, .top_p = 0.5}, {{1, 1}}},
        // Top-p's mass is of all, not of what min-p leaves: .4 + .3 is under .71, .15 comes in by
        // top-p and goes by min-p (.15 < .5 * .4).
        Case{"top_p_before_min_p",
             {.temperature = 1, .top_p = 0.71, .min_p = 0.5},
             {{1, 4. / 7}, {3, 3. / 7}}},
        // Temperature comes first: at T = 1/2 the largest holds .561.
        Case{"temperature_before_top_p", {.temperature = 0.5, .top_p = 0.55}, {{1, 1}}}),
    [](const auto& info) {
      std::string name = info.param.name;
      for (char& c : name) c = c == '.' ? '_' : c;
      return name;
    });

TEST(DistributionEdgeTest, TiesWithTheKthStayAndOfEqualOnesTheLowestIdIsGreedy) {
  const std::vector<float> logits = {1, 5, 3, 5, 3};
  EXPECT_EQ(DistributionOf(logits, {}), (Shares{{1, 1}}));
  EXPECT_EQ(DistributionOf(logits, {.temperature = 1, .top_k = 1}).size(), 2u);
  EXPECT_EQ(DistributionOf(logits, {.temperature = 1, .top_k = 3}).size(), 4u);
  // Equal probabilities: top-p takes the lower ids.
  EXPECT_EQ(DistributionOf({2, 2, 2, 2}, {.temperature = 1, .top_p = 0.5}),
            (Shares{{0, .5}, {1, .5}}));
}

TEST(DistributionEdgeTest, NearTemperatureZeroItIsGreedyAndFarAboveItIsUniform) {
  for (const double temperature : {1e-5, 1e-30, 1e-300}) {
    const Shares shares = DistributionOf(Five(), {.temperature = temperature});
    EXPECT_EQ(shares.at(1), 1) << temperature;
  }
  for (const auto& [id, p] : DistributionOf(Five(), {.temperature = 1e9})) {
    EXPECT_NEAR(p, 0.2, 1e-6) << id;
  }
}

TEST(DistributionEdgeTest, OneTokenIsAlwaysThatToken) {
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_EQ(DistributionOf({-3.0f}, {.temperature = temperature, .top_k = 4, .top_p = 0.1}),
              (Shares{{0, 1}}));
  }
}

// Hugging Face's definition: positive logits divided, negative multiplied, each token once however
// often it occurs.
TEST(RepetitionPenaltyTest, DividesPositiveAndMultipliesNegativeOnce) {
  const std::vector<float> logits = {2, -1, 1, 0};
  const SamplingOptions options = {.temperature = 1, .repetition_penalty = 2};
  const auto softmax = [](const std::vector<double>& x) {
    double total = 0;
    for (const double v : x) total += std::exp(v);
    Shares shares;
    for (size_t i = 0; i < x.size(); ++i) {
      shares[static_cast<int32_t>(i)] = std::exp(x[i]) / total;
    }
    return shares;
  };
  for (const auto& [history, expected] :
       std::vector<std::pair<std::vector<int32_t>, std::vector<double>>>{
           {{}, {2, -1, 1, 0}},
           {{0}, {1, -1, 1, 0}},
           {{1}, {2, -2, 1, 0}},
           {{0, 0, 1, 0, 3}, {1, -2, 1, 0}}}) {
    const Shares got = DistributionOf(logits, options, history);
    for (const auto& [id, p] : softmax(expected)) EXPECT_NEAR(got.at(id), p, 1e-7) << id;
  }
}

TEST(RepetitionPenaltyTest, CountsWhenGreedyAndUnderOneItRewards) {
  EXPECT_EQ(DistributionOf({2, 1.5, 0}, {.repetition_penalty = 1.4}, {0}), (Shares{{1, 1}}));
  EXPECT_EQ(DistributionOf({2, 1.5, 0}, {.repetition_penalty = 0.5}, {1}), (Shares{{1, 1}}));
}

TEST(TokenSamplerTest, RefusesLogitsThatAreNotFinite) {
  TokenSampler sampler;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const double temperature : {0.0, 1.0}) {
      std::vector<float> logits(100, 1.0f);
      logits[37] = bad;
      const auto token =
          sampler.Sample(logits, {}, {.temperature = temperature, .top_k = 5, .top_p = 0.9}, 0.5);
      EXPECT_EQ(token.status().code(), StatusCode::kDataLoss);
      EXPECT_NE(Message(token.status()).find("token 37 of 100"), std::string::npos)
          << token.status();
    }
  }
}

TEST(TokenSamplerTest, APenaltyThatOverflowsIsAnError) {
  TokenSampler sampler;
  const std::vector<float> logits = {3e38f, 1};
  const std::vector<int32_t> history = {0};
  const auto token = sampler.Sample(logits, history, {.repetition_penalty = 1e-9}, 0.5);
  EXPECT_EQ(token.status().code(), StatusCode::kInvalidArgument) << token.status();
}

// The share of [0, 1) that gives each token is its probability.
TEST(TokenSamplerTest, DrawsEachTokenByItsProbability) {
  TokenSampler sampler;
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 2, .top_p = 0.8},
        SamplingOptions{.temperature = 1, .top_k = 3, .min_p = 0.4}}) {
    const Shares expected = DistributionOf(Five(), options);
    Shares drawn;
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) {
      drawn[*sampler.Sample(Five(), {}, options, (i + 0.5) / kDraws)] += 1.0 / kDraws;
    }
    ASSERT_EQ(drawn.size(), expected.size());
    for (const auto& [id, p] : expected) EXPECT_NEAR(drawn.at(id), p, 1.01 / kDraws) << id;
  }
}

TEST(TokenSamplerTest, UAtItsEdgesGivesATokenThatCanBe) {
  TokenSampler sampler;
  const double below_one = std::nextafter(1.0, 0.0);
  EXPECT_EQ(*sampler.Sample(Five(), {}, {.temperature = 1}, 0), 0);
  EXPECT_EQ(*sampler.Sample(Five(), {}, {.temperature = 1}, below_one), 4);
  // Probabilities that underflow to 0 are never chosen, at neither end.
  std::vector<float> sharp(1000, -1e9f);
  sharp[500] = 0;
  for (const double u : {0.0, 0.5, below_one}) {
    EXPECT_EQ(*sampler.Sample(sharp, {}, {.temperature = 1}, u), 500);
  }
}

TEST(TokenSamplerTest, AgreesWithASortOfEverythingOnRandomLogits) {
  TokenSampler sampler;
  const Rng rng(3, StreamOf("sampling test"));
  for (uint64_t round = 0; round < 60; ++round) {
    const size_t vocab = 1 + rng.Below(round * 4, 400);
    std::vector<float> logits(vocab);
    for (size_t i = 0; i < vocab; ++i) logits[i] = 3 * rng.Normal(1000 * (round + 1) + i);
    const SamplingOptions options = {.temperature = 0.3 + rng.Uniform(round * 4 + 1),
                                     .top_k = static_cast<int64_t>(rng.Below(round * 4 + 2, 60)),
                                     .top_p = rng.Uniform(round * 4 + 3)};
    // Slowly: sort, cut, add up.
    std::vector<std::pair<double, int32_t>> sorted;
    for (size_t i = 0; i < vocab; ++i) {
      sorted.emplace_back(-logits[i] / options.temperature, static_cast<int32_t>(i));
    }
    std::sort(sorted.begin(), sorted.end());
    if (options.top_k > 0) {
      sorted.resize(std::min(vocab, static_cast<size_t>(options.top_k)));
    }
    double total = 0, before = 0, kept = 0;
    for (const auto& [x, id] : sorted) total += std::exp(-x);
    Shares expected;
    for (const auto& [x, id] : sorted) {
      if (!expected.empty() && before / total >= options.top_p) break;
      expected[id] = std::exp(-x);
      before += std::exp(-x);
      kept = before;
    }
    const Shares got = DistributionOf(logits, options);
    ASSERT_EQ(got.size(), expected.size()) << round;
    for (const auto& [id, weight] : expected) {
      ASSERT_TRUE(got.contains(id)) << round;
      EXPECT_NEAR(got.at(id), weight / kept, 1e-9) << round;
    }
  }
}

TEST(UniformAtTest, IsAFunctionOfSeedPromptAndPosition) {
  std::set<double> seen;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    for (uint64_t prompt = 0; prompt < 5; ++prompt) {
      for (int64_t position = 0; position < 5; ++position) {
        const double u = UniformAt(seed, prompt, position);
        EXPECT_GE(u, 0);
        EXPECT_LT(u, 1);
        EXPECT_EQ(u, UniformAt(seed, prompt, position));
        seen.insert(u);
      }
    }
  }
  EXPECT_EQ(seen.size(), 125u);
}

TEST(ValidateTest, NamesTheOptionAndItsValue) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(Validate({}).ok());
  EXPECT_TRUE(Validate({.temperature = 2, .top_k = 9, .top_p = 0, .min_p = 1}).ok());
  for (const auto& [options, name] : std::vector<std::pair<SamplingOptions, std::string>>{
           {{.temperature = -0.5}, "temperature -0.5"},
           {{.temperature = nan}, "temperature nan"},
           {{.temperature = HUGE_VAL}, "temperature inf"},
           {{.top_k = -1}, "top-k -1"},
           {{.top_p = 1.5}, "top-p 1.5"},
           {{.top_p = nan}, "top-p nan"},
           {{.min_p = -0.1}, "min-p -0.1"},
           {{.repetition_penalty = 0}, "repetition-penalty 0"},
           {{.repetition_penalty = nan}, "repetition-penalty nan"}}) {
    const Status status = Validate(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Message(status).rfind(name, 0), 0u) << status;
  }
}

}  // namespace
}  // namespace cria::trainer
