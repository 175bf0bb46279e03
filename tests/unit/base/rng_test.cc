#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace cria {
namespace {

using Block = std::array<uint32_t, 4>;

// The known answers of Random123's kat_vectors, philox4x32 with 10 rounds.
TEST(PhiloxTest, GivesRandom123KnownAnswers) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(Philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Index and stream are the counter, low words first; the seed is the key.
TEST(RngTest, U64IsTheFirstTwoWordsOfTheBlock) {
  const Rng rng(/*seed=*/uint64_t{0x299f31d0} << 32 | 0xa4093822,
                /*stream=*/uint64_t{0x03707344} << 32 | 0x13198a2e);
  EXPECT_EQ(rng.U64(uint64_t{0x85a308d3} << 32 | 0x243f6a88), 0x94fdccebd16cfe09u);
}

TEST(RngTest, ValuesDependOnSeedStreamAndIndexOnly) {
  const Rng rng(1, 2);
  std::set<uint64_t> values;
  for (uint64_t index = 0; index < 1000; ++index) values.insert(rng.U64(index));
  EXPECT_EQ(values.size(), 1000u);
  EXPECT_EQ(Rng(1, 2).U64(7), rng.U64(7));
  EXPECT_NE(Rng(2, 2).U64(7), rng.U64(7));
  EXPECT_NE(Rng(1, 3).U64(7), rng.U64(7));
  EXPECT_NE(StreamOf("layers.0"), StreamOf("layers.1"));
}

TEST(RngTest, UniformFillsTheUnitIntervalEvenly) {
  const Rng rng(3, 4);
  constexpr int kNumDraws = 100'000;
  std::vector<int> counts(10);
  for (int i = 0; i < kNumDraws; ++i) {
    const double u = rng.Uniform(i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++counts[static_cast<int>(u * 10)];
  }
  // Each bin is binomial: mean 10000, standard deviation 95.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * 95);
}

TEST(RngTest, NormalHasTheMomentsAndTailsOfANormal) {
  const Rng rng(5, 6);
  constexpr int kNumDraws = 200'000;
  double sum = 0, sum2 = 0, sum3 = 0, sum4 = 0;
  int beyond_2 = 0;
  for (int i = 0; i < kNumDraws; ++i) {
    const double x = rng.Normal(i);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    sum2 += x * x;
    sum3 += x * x * x;
    sum4 += x * x * x * x;
    beyond_2 += std::abs(x) > 2;
  }
  // Five standard errors: sqrt(var(x^k) / n), var = 1, 2, 15, 96.
  EXPECT_NEAR(sum / kNumDraws, 0, 5 * std::sqrt(1.0 / kNumDraws));
  EXPECT_NEAR(sum2 / kNumDraws, 1, 5 * std::sqrt(2.0 / kNumDraws));
  EXPECT_NEAR(sum3 / kNumDraws, 0, 5 * std::sqrt(15.0 / kNumDraws));
  EXPECT_NEAR(sum4 / kNumDraws, 3, 5 * std::sqrt(96.0 / kNumDraws));
  EXPECT_NEAR(beyond_2 / static_cast<double>(kNumDraws), 0.0455003,
              5 * std::sqrt(0.0455 / kNumDraws));
}

// The normal's distribution function at each draw must give the uniform number it came from.
TEST(RngTest, NormalInvertsTheDistributionFunction) {
  const Rng rng(7, 8);
  for (int i = 0; i < 20'000; ++i) {
    const double p = (static_cast<double>(rng.U64(i) >> 12) + 0.5) * 0x1.0p-52;
    const double x = rng.Normal(i);
    // The smaller tail, compared relatively; a float x is off by 2^-24 |x|, which moves a tail by
    // about x^2 2^-24 of itself.
    const double tail = 0.5 * std::erfc(std::abs(x) / std::sqrt(2.0));
    const double expected = std::min(p, 1 - p);
    ASSERT_NEAR(tail / expected, 1, 1e-6 * (1 + x * x)) << "p " << p << " x " << x;
    ASSERT_EQ(x < 0, p < 0.5);
  }
}

TEST(RngTest, BelowStaysBelowAndReachesEveryValue) {
  const Rng rng(9, 10);
  std::vector<int> counts(7);
  for (int i = 0; i < 70'000; ++i) ++counts.at(rng.Below(i, 7));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * 93);
  EXPECT_EQ(rng.Below(0, 1), 0u);
  EXPECT_LT(rng.Below(1, ~uint64_t{0}), ~uint64_t{0});
}

class KeyedPermutationTest : public testing::TestWithParam<uint64_t> {};

TEST_P(KeyedPermutationTest, IsABijection) {
  const uint64_t n = GetParam();
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const KeyedPermutation order(seed, StreamOf("test"), n);
    ASSERT_EQ(order.size(), n);
    std::vector<bool> seen(n);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t value = order.At(i);
      ASSERT_LT(value, n);
      ASSERT_FALSE(seen[value]) << "seed " << seed << " i " << i;
      seen[value] = true;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, KeyedPermutationTest,
                         testing::Values(1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097, 65537));

TEST(KeyedPermutationTest, ReachesEveryOrderOfThree) {
  std::map<std::vector<uint64_t>, int> counts;
  constexpr int kNumSeeds = 6000;
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    const KeyedPermutation order(seed, 0, 3);
    ++counts[{order.At(0), order.At(1), order.At(2)}];
  }
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

// A shuffle must leave neither many fixed points (the mean is 1) nor neighbours together.
TEST(KeyedPermutationTest, KeepsNoOrderOfTheOriginal) {
  constexpr uint64_t kSize = 10'000;
  int fixed = 0, neighbours = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const KeyedPermutation order(seed, 1, kSize);
    for (uint64_t i = 0; i < kSize; ++i) {
      fixed += order.At(i) == i;
      if (i > 0) neighbours += order.At(i) == order.At(i - 1) + 1;
    }
  }
  EXPECT_NEAR(fixed, 20, 5 * std::sqrt(20));
  EXPECT_NEAR(neighbours, 20, 5 * std::sqrt(20));
}

TEST(KeyedPermutationTest, WorksAtTheLargestSizes) {
  for (const uint64_t n : {uint64_t{1} << 62, (uint64_t{1} << 62) + 1, ~uint64_t{0}}) {
    const KeyedPermutation order(1, 2, n);
    std::set<uint64_t> values;
    for (uint64_t i = 0; i < 100; ++i) values.insert(order.At(i));
    EXPECT_EQ(values.size(), 100u);
    EXPECT_LT(*values.rbegin(), n);
  }
}

TEST(KeyedPermutationDeathTest, ChecksTheIndex) {
  EXPECT_DEATH(KeyedPermutation(1, 2, 0).At(0), "CHECK failed");
  EXPECT_DEATH(KeyedPermutation(1, 2, 5).At(5), "CHECK failed");
}

}  // namespace
}  // namespace cria
