#include "trainer/bench/samples.h"

#include <gtest/gtest.h>

namespace cria::trainer {
namespace {

Samples Of(const std::vector<double>& values) {
  Samples samples;
  for (const double value : values) samples.Add(value);
  return samples;
}

TEST(SamplesTest, OddAndEvenCountsHaveAMedian) {
  EXPECT_EQ(Of({3, 1, 2}).Median(), 2);
  EXPECT_EQ(Of({4, 1, 2, 3}).Median(), 2.5);
  EXPECT_EQ(Of({7}).Median(), 7);
}

TEST(SamplesTest, BestIsTheLeast) { EXPECT_EQ(Of({3, 1, 2}).Best(), 1); }

TEST(SamplesTest, SpreadIsTheInterquartileRangeOverTheMedian) {
  EXPECT_DOUBLE_EQ(Of({1, 2, 3, 4, 5}).Spread(), 2.0 / 3);
  EXPECT_EQ(Of({5}).Spread(), 0);
}

TEST(SamplesTest, NothingMeasuredGivesZeros) {
  EXPECT_EQ(Samples().Median(), 0);
  EXPECT_EQ(Samples().Best(), 0);
  EXPECT_EQ(Samples().Spread(), 0);
}

TEST(SamplesTest, RatiosArePairedByRound) {
  // A slow second round hits both: the ratio stays.
  EXPECT_EQ(MedianRatio(Of({2, 20, 2}), Of({1, 10, 1})), 2);
  // A peer that ran in the first round only.
  EXPECT_EQ(MedianRatio(Of({6}), Of({2, 100, 100})), 3);
  EXPECT_EQ(MedianRatio(Of({}), Of({1})), 0);
}

}  // namespace
}  // namespace cria::trainer
