#include "model/io/gguf_rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace cria::model {
namespace {

LlamaConfig Config(int64_t head_dim, double theta, RopeScaling scaling) {
  LlamaConfig config;
  config.heads = 4;
  config.kv_heads = 4;
  config.dim = 4 * head_dim;
  config.rope_theta = theta;
  config.max_positions = 131072;
  config.rope_scaling = std::move(scaling);
  return config;
}

// Llama 3.1 8B by hand: 29 frequencies kept, 6 blended, 29 divided by 8; 3.2 1B: 15, 3, 14 by 32.
TEST(GgufRopeTest, GivesTheDivisorsOfLlama31And32) {
  for (const auto& [head_dim, factor, kept, blended] :
       {std::tuple{128, 8.0, 29, 6}, std::tuple{64, 32.0, 15, 3}}) {
    const std::vector<float> divisors =
        RopeDivisors(Config(head_dim, 500000, {"llama3", factor, 1, 4, 8192}));
    ASSERT_EQ(divisors.size(), static_cast<size_t>(head_dim / 2));
    EXPECT_EQ(std::count(divisors.begin(), divisors.end(), 1.0f), kept);
    EXPECT_EQ(std::count(divisors.begin(), divisors.end(), static_cast<float>(factor)),
              head_dim / 2 - kept - blended);
    for (int i = kept; i < kept + blended; ++i) {
      const double wavelength = 2 * std::numbers::pi * std::pow(500000.0, 2.0 * i / head_dim);
      const double s = (8192 / wavelength - 1) / 3;
      EXPECT_FLOAT_EQ(divisors[static_cast<size_t>(i)],
                      static_cast<float>(1 / ((1 - s) / factor + s)));
    }
  }
}

class GgufRopeRecoveryTest : public testing::TestWithParam<std::tuple<LlamaConfig, int64_t>> {};

TEST_P(GgufRopeRecoveryTest, FindsTheParametersAgain) {
  const auto& [config, hint] = GetParam();
  const std::vector<float> divisors = RopeDivisors(config);
  const auto found = ScalingFromDivisors(divisors, config, hint);
  ASSERT_TRUE(found.ok()) << found.status();
  const RopeScaling& want = config.rope_scaling;
  EXPECT_EQ(found->type, "llama3");
  EXPECT_EQ(found->factor, want.factor);
  EXPECT_EQ(found->low_freq_factor, want.low_freq_factor);
  EXPECT_EQ(found->high_freq_factor, want.high_freq_factor);
  EXPECT_EQ(found->original_max_positions, want.original_max_positions);
  // And so an export of it has the same bytes.
  LlamaConfig again = config;
  again.rope_scaling = *found;
  EXPECT_EQ(RopeDivisors(again), divisors);
}

INSTANTIATE_TEST_SUITE_P(
    Known, GgufRopeRecoveryTest,
    testing::Values(
        std::tuple{Config(128, 500000, {"llama3", 8, 1, 4, 8192}), int64_t{0}},
        std::tuple{Config(64, 500000, {"llama3", 32, 1, 4, 8192}), int64_t{0}},
        std::tuple{Config(32, 500000, {"llama3", 8, 1, 4, 256}), int64_t{0}},
        std::tuple{Config(8, 500000, {"llama3", 8, 1, 4, 256}), int64_t{256}},
        std::tuple{Config(128, 10000, {"llama3", 2.5, 1, 4, 2048}), int64_t{0}},
        // Only the file's own word tells these apart: low, high and original scale together.
        std::tuple{Config(128, 500000, {"llama3", 8, 2, 8, 8192}), int64_t{8192}},
        std::tuple{Config(128, 500000, {"llama3", 16, 1, 2.5, 8192}), int64_t{8192}},
        std::tuple{Config(128, 500000, {"llama3", 8, 1, 4, 5000}), int64_t{0}},
        // All kept: no number is in the tensor, but some scaling is.
        std::tuple{Config(16, 100, {"llama3", 1, 1, 4, 8192}), int64_t{0}}));

// As llama.cpp's converter computes them: frequencies in fp32, a few ulps off where the head size
// is no power of two.
TEST(GgufRopeTest, FindsTheParametersBehindAConvertersArithmetic) {
  for (const int head_dim : {64, 80, 96, 100, 128, 160}) {
    for (const double factor : {8.0, 16.0, 32.0}) {
      std::vector<float> divisors;
      for (int i = 0; i < head_dim; i += 2) {
        const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
        const float frequency = 1.0f / std::pow(500000.0f, exponent);
        const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
        const float smooth = (8192.0f / wavelength - 1) / 3;
        divisors.push_back(smooth > 1   ? 1.0f
                           : smooth < 0 ? static_cast<float>(factor)
                                        : 1 / ((1 - smooth) / static_cast<float>(factor) + smooth));
      }
      const auto found =
          ScalingFromDivisors(divisors, Config(head_dim, 500000, {"default", 1, 1, 4, 8192}), 0);
      ASSERT_TRUE(found.ok()) << head_dim << ": " << found.status();
      EXPECT_EQ(found->factor, factor);
      EXPECT_EQ(found->low_freq_factor, 1);
      EXPECT_EQ(found->high_freq_factor, 4);
      EXPECT_EQ(found->original_max_positions, 8192);
    }
  }
}

TEST(GgufRopeTest, RefusesDivisorsThatAreNotOfThisKind) {
  // Of six blended frequencies one is off; a kept one is not.
  const LlamaConfig large = Config(128, 500000, {"llama3", 8, 1, 4, 8192});
  for (const size_t i : {size_t{0}, size_t{31}}) {
    std::vector<float> divisors = RopeDivisors(large);
    divisors[i] *= 1.001f;
    EXPECT_EQ(ScalingFromDivisors(divisors, large, 8192).status().code(),
              StatusCode::kInvalidArgument);
  }
  const LlamaConfig config = Config(32, 500000, {"llama3", 8, 1, 4, 256});
  std::vector<float> divisors = RopeDivisors(config);
  for (const float bad : {std::nanf(""), INFINITY, -1.0f, 0.0f}) {
    std::vector<float> all(16, bad);
    EXPECT_FALSE(ScalingFromDivisors(all, config, 0).ok()) << bad;
    divisors = RopeDivisors(config);
    divisors[15] = bad;
    EXPECT_FALSE(ScalingFromDivisors(divisors, config, 0).ok()) << bad;
  }
}

}  // namespace
}  // namespace cria::model
