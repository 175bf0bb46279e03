#include "comm/bench/bench_options.h"

#include <gtest/gtest.h>

namespace cria::comm {
namespace {

TEST(BenchOptionsTest, ReadsSizes) {
  EXPECT_EQ(*ParseBytes("8"), 8);
  EXPECT_EQ(*ParseBytes("64K"), 65536);
  EXPECT_EQ(*ParseBytes("64k"), 65536);
  EXPECT_EQ(*ParseBytes("64KiB"), 65536);
  EXPECT_EQ(*ParseBytes("1.5M"), 1572864);
  EXPECT_EQ(*ParseBytes("4G"), int64_t{4} << 30);
  EXPECT_EQ(*ParseBytes("100B"), 100);
  for (const char* wrong : {"", "K", "8X", "-1", "8 8", "nan", "1e30"}) {
    EXPECT_EQ(ParseBytes(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(BenchOptionsTest, SweepsByFactorOrStep) {
  BenchOptions options;
  options.min_bytes = 8;
  options.max_bytes = 100;
  options.step_factor = 2;
  EXPECT_EQ(SizesOf(options), (std::vector<int64_t>{8, 16, 32, 64}));
  options.step_factor = 0;
  options.step_bytes = 40;
  EXPECT_EQ(SizesOf(options), (std::vector<int64_t>{8, 48, 88}));
  // From nothing a factor never gets away; a step of 1 does.
  options.min_bytes = 0;
  options.max_bytes = 2;
  options.step_factor = 2;
  EXPECT_EQ(SizesOf(options), (std::vector<int64_t>{0, 1, 2}));
}

TEST(BenchOptionsTest, SplitsLikeNcclTests) {
  EXPECT_EQ(*SplitColor("MOD 2", 5), 1);
  EXPECT_EQ(*SplitColor("DIV 2", 5), 2);
  EXPECT_EQ(*SplitColor("AND 0x4", 5), 4);
  EXPECT_EQ(*SplitColor("OR 0x2", 5), 7);
  for (const char* wrong : {"MOD", "MOD 0", "DIV x", "XOR 2", "MOD -1", ""}) {
    EXPECT_FALSE(SplitColor(wrong, 0).ok()) << wrong;
  }
}

TEST(BenchOptionsTest, KnowsOperationsByAllTheirNames) {
  EXPECT_EQ(ParseOps("allreduce,all_reduce,AllReduce,all-reduce")->size(), 4U);
  EXPECT_EQ(ParseOps("sendrecv")->front(), OpKind::kSend);
  EXPECT_EQ(ParseOps("all")->size(), 13U);
  EXPECT_FALSE(ParseOps("all_redude").ok());
  EXPECT_FALSE(ParseOps("").ok());
  EXPECT_EQ(ParseDataTypes("all")->size(), static_cast<size_t>(kNumDataTypes));
  EXPECT_EQ(ParseReduceOps("sum,avg")->size(), 2U);
}

}  // namespace
}  // namespace cria::comm
