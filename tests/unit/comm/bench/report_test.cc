#include "comm/bench/report.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace cria::comm {
namespace {

TEST(ReportTest, BusBandwidthIsThatOfNcclTests) {
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(1'000'000'000, 1e6), 1.0);
  EXPECT_DOUBLE_EQ(BusFactor(OpKind::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(BusFactor(OpKind::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor(OpKind::kAllToAll, 2), 0.5);
  EXPECT_DOUBLE_EQ(BusFactor(OpKind::kBroadcast, 4), 1.0);
}

TEST(ReportTest, MediansAndPercentiles) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1}), 2.5);
  EXPECT_EQ(Percentile({0, 1, 2, 3, 4}, 0.75), 3);
}

TEST(ReportTest, JsonHasARowForEachPlacementThatIsThere) {
  BenchRow row = {.impl = "cria", .buffers = "segment", .bytes = 1000, .count = 250, .ranks = 2};
  row.out_of_place = {.there = true, .time_us = 2, .wrong = 0, .bound_us = 1, .times_mpi = 3};
  const auto text = RowsAsJson({row, row});
  ASSERT_TRUE(text.ok());
  const auto json = ParseJson(*text, "rows");
  ASSERT_TRUE(json.ok()) << json.status();
  ASSERT_EQ(json->size(), 2U);
  const Json& first = (*json)[0];
  EXPECT_EQ(first["impl"], "cria");
  EXPECT_EQ(first["op"], "all_reduce");
  EXPECT_EQ(first["bytes"], 1000);
  EXPECT_EQ(first["time_us"], 2.0);
  EXPECT_EQ(first["algbw"], 0.5);
  EXPECT_EQ(first["busbw"], 0.5);
  EXPECT_EQ(first["wrong"], 0);
  EXPECT_EQ(first["buffers"], "segment");
  EXPECT_EQ(first["times_mpi"], 3.0);
  EXPECT_FALSE(first.contains("times_gloo"));
}

}  // namespace
}  // namespace cria::comm
