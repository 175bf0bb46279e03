#include "comm/mpi/mpi_reduction.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace cria::comm {
namespace {

// Encodes each rank's values, adds up what travels as MPI would, decodes.
template <typename T>
std::vector<T> AverageOf(DataType dtype, const std::vector<std::vector<T>>& ranks) {
  const MpiReduction reduction(
      {.dtype = dtype, .op = ReduceOp::kAvg, .group_size = static_cast<int>(ranks.size())});
  const auto count = static_cast<int64_t>(ranks[0].size());
  std::vector<int64_t> sum(static_cast<size_t>(count) * 2), wire(sum.size());
  for (const std::vector<T>& values : ranks) {
    reduction.Encode(values.data(), count, wire.data());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += wire[i];
  }
  std::vector<T> average(ranks[0].size());
  reduction.Decode(sum.data(), count, average.data());
  return average;
}

TEST(MpiReductionTest, AverageOfIntegersTruncatesTowardZero) {
  EXPECT_EQ((AverageOf<int32_t>(DataType::kInt32, {{7, -7, 1, -1, 0, 2}, {0, 0, 0, 0, 0, -2}})),
            (std::vector<int32_t>{3, -3, 0, 0, 0, 0}));
  EXPECT_EQ((AverageOf<int8_t>(DataType::kInt8, {{127, -128}, {127, -128}, {126, -127}})),
            (std::vector<int8_t>{126, -127}));
  EXPECT_EQ((AverageOf<uint8_t>(DataType::kUint8, {{255}, {254}})), (std::vector<uint8_t>{254}));
}

TEST(MpiReductionTest, AverageOfTheGreatestInt64DoesNotOverflow) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  EXPECT_EQ((AverageOf<int64_t>(
                DataType::kInt64,
                {{kMax, kMin, kMax, kMin + 1}, {kMax, kMin, kMin, kMin}, {kMax, kMin, 1, kMin}})),
            (std::vector<int64_t>{kMax, kMin, 0, kMin + 1}));
}

TEST(MpiReductionTest, MatchesWideArithmeticForAllSmallValues) {
  // All pairs of int8, and three ranks: the exact sum divided, toward zero.
  for (int a = -128; a < 128; ++a) {
    std::vector<int8_t> first(256, static_cast<int8_t>(a)), second, third;
    for (int b = -128; b < 128; ++b) {
      second.push_back(static_cast<int8_t>(b));
      third.push_back(static_cast<int8_t>((b * 7 + a) % 128));
    }
    const auto average = AverageOf<int8_t>(DataType::kInt8, {first, second, third});
    for (size_t i = 0; i < 256; ++i) {
      ASSERT_EQ(average[i], (first[i] + second[i] + third[i]) / 3);
    }
  }
}

TEST(MpiReductionTest, SixteenBitsTravelAsFloats) {
  const MpiReduction reduction({.dtype = DataType::kBfloat16, .group_size = 2});
  EXPECT_TRUE(reduction.needed());
  EXPECT_EQ(reduction.wire_dtype(), DataType::kFloat32);
  const uint16_t input[] = {0x3f80, 0x4049};  // 1, 3.140625
  float wire[2] = {};
  reduction.Encode(input, 2, wire);
  EXPECT_EQ(wire[0], 1.0F);
  EXPECT_EQ(wire[1], 3.140625F);
  wire[0] = 1.01171875F;  // between two neighbours: to even
  uint16_t output[2] = {};
  reduction.Decode(wire, 2, output);
  EXPECT_EQ(output[0], 0x3f82);
  EXPECT_EQ(output[1], 0x4049);
}

TEST(MpiReductionTest, WhatMpiHasNeedsNothing) {
  EXPECT_FALSE(MpiReduction({.dtype = DataType::kFloat32}).needed());
  EXPECT_FALSE(MpiReduction({.dtype = DataType::kInt64, .op = ReduceOp::kMax}).needed());
  EXPECT_TRUE(MpiReduction({.dtype = DataType::kFloat32, .op = ReduceOp::kAvg}).needed());
}

}  // namespace
}  // namespace cria::comm
