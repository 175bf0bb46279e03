#include "model/llama/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace cria::model {
namespace {

LlamaConfig Llama31(int64_t head_dim, double factor) {
  LlamaConfig config;
  config.dim = head_dim * 32;
  config.heads = 32;
  config.kv_heads = 8;
  config.rope_theta = 500000;
  config.rope_scaling = {.type = "llama3", .factor = factor};
  return config;
}

double Plain(const LlamaConfig& config, int64_t i) {
  return 1 / std::pow(config.rope_theta,
                      2.0 * static_cast<double>(i) / static_cast<double>(config.HeadDim()));
}

struct Counts {
  int kept = 0, blended = 0, scaled = 0;
  bool operator==(const Counts&) const = default;
};

// Sorts the frequencies by what became of them, and checks that a blended one lies between.
Counts CountKinds(const LlamaConfig& config) {
  const double factor = config.rope_scaling.factor;
  const std::vector<double> frequencies = RopeFrequencies(config);
  Counts counts;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double plain = Plain(config, static_cast<int64_t>(i));
    if (std::fabs(frequencies[i] / plain - 1) < 1e-12) {
      ++counts.kept;
    } else if (std::fabs(frequencies[i] * factor / plain - 1) < 1e-12) {
      ++counts.scaled;
    } else {
      EXPECT_LT(frequencies[i], plain);
      EXPECT_GT(frequencies[i], plain / factor);
      ++counts.blended;
    }
  }
  return counts;
}

// Reports: the factor 8 hard-coded, where the 1B model has 32.
TEST(RopeTableTest, ScalesLlama31AsPublished) {
  EXPECT_EQ(CountKinds(Llama31(128, 8)), (Counts{29, 6, 29}));  // 8B
  EXPECT_EQ(CountKinds(Llama31(64, 32)), (Counts{15, 3, 14}));  // 3.2-1B
}

TEST(RopeTableTest, BlendsLinearlyInTheNumberOfTurns) {
  for (const LlamaConfig& config : {Llama31(128, 8), Llama31(64, 32)}) {
    const std::vector<double> frequencies = RopeFrequencies(config);
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double plain = Plain(config, static_cast<int64_t>(i));
      // Turns that the pair makes over the original context: from 1 (divided) to 4 (kept).
      const double turns = 8192 * plain / (2 * M_PI);
      const double kept = std::fmin(1, std::fmax(0, (turns - 1) / 3));
      const double want = plain * kept + plain / config.rope_scaling.factor * (1 - kept);
      EXPECT_NEAR(frequencies[i] / want, 1, 1e-12) << i;
    }
  }
}

TEST(RopeTableTest, DefaultAndLinear) {
  LlamaConfig config = Llama31(64, 4);
  config.rope_scaling.type = "default";
  for (int64_t i = 0; i < 32; ++i) {
    EXPECT_NEAR(RopeFrequencies(config)[static_cast<size_t>(i)] / Plain(config, i), 1, 1e-14);
  }
  config.rope_scaling.type = "linear";
  for (int64_t i = 0; i < 32; ++i) {
    EXPECT_NEAR(RopeFrequencies(config)[static_cast<size_t>(i)] * 4 / Plain(config, i), 1, 1e-14);
  }
}

TEST(RopeTableTest, HeadDimOfTwoHasOnePairThatTurnsOneRadian) {
  LlamaConfig config;
  config.head_dim = 2;
  EXPECT_EQ(RopeFrequencies(config), (std::vector<double>{1}));
}

// Reports: integers above 256 are not exact in bf16, so angles at long positions were wrong.
TEST(RopeTableTest, IsRightAtLongPositions) {
  for (const LlamaConfig& config : {Llama31(128, 8), Llama31(64, 32)}) {
    constexpr int64_t kPositions = 15963;
    const int64_t half = config.HeadDim() / 2;
    std::vector<float> cosines(static_cast<size_t>(kPositions * half)), sines(cosines.size());
    FillRopeTable(config, Tensor(cosines.data(), DType::kF32, {kPositions, half}),
                  Tensor(sines.data(), DType::kF32, {kPositions, half}));
    const std::vector<double> frequencies = RopeFrequencies(config);
    for (const int64_t position : {0, 1, 255, 257, 1023, 8191, 15962}) {
      for (int64_t i = 0; i < half; ++i) {
        const long double angle = static_cast<long double>(position) *
                                  static_cast<long double>(frequencies[static_cast<size_t>(i)]);
        const auto at = static_cast<size_t>(position * half + i);
        EXPECT_NEAR(cosines[at], static_cast<double>(std::cos(angle)), 6e-8);
        EXPECT_NEAR(sines[at], static_cast<double>(std::sin(angle)), 6e-8);
      }
    }
  }
}

}  // namespace
}  // namespace cria::model
