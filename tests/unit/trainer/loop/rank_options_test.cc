#include "trainer/loop/rank_options.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "trainer/config/train_config.h"

namespace cria::trainer {
namespace {

TrainConfig Config() {
  TrainConfig config;
  config.train.batch = 64;
  config.train.micro_batch = 2;
  config.train.seq = 128;
  return config;
}

TEST(RankOptionsTest, AreTheJobsOnOneRank) {
  const model::LlamaOptions options = RankOptions(Config(), {}, 0);
  EXPECT_EQ(options.layout, model::Layout{});
  EXPECT_EQ(options.max_batch, 2);
  EXPECT_EQ(options.max_time, 128);
  EXPECT_EQ(options.slots, 1);
}

TEST(RankOptionsTest, AMicroBatchIsNoLargerThanARanksShare) {
  TrainConfig config = Config();
  config.train.micro_batch = 16;
  EXPECT_EQ(RankOptions(config, {.dp = 4}, 3).max_batch, 16);
  EXPECT_EQ(RankOptions(config, {.dp = 7}, 3).max_batch, 10);    // 64 / 7, rounded up
  EXPECT_EQ(RankOptions(config, {.dp = 100}, 99).max_batch, 1);  // some ranks have none
}

TEST(RankOptionsTest, EarlierStagesHoldMore) {
  const model::Layout layout = {.pp = 4, .dp = 2};  // 16 micro-batches
  for (int pp = 0; pp < 4; ++pp) {
    EXPECT_EQ(RankOptions(Config(), layout, pp).slots, 4 - pp);
    EXPECT_EQ(RankOptions(Config(), layout, 4 + pp).slots, 4 - pp);
    EXPECT_EQ(RankOptions(Config(), layout, 4 + pp).rank, 4 + pp);
  }
}

// Two stages of two chunks. 4 micro-batches are two groups of 2: 2 + 2 in flight on the first rank.
// 3 are one group, which needs 3 + 2: a ramp that goes through 3 has slots for them.
TEST(RankOptionsTest, SlotsAreEnoughForEveryStepOfARamp) {
  TrainConfig config = Config();
  const model::Layout layout = {.pp = 2, .pp_chunks = 2};
  config.train.batch = 8;
  EXPECT_EQ(RankOptions(config, layout, 0).slots, 4);
  config.train.ramp_batch = {6};
  config.train.ramp_until = {10};
  EXPECT_EQ(BatchSizes(config), (std::vector<int64_t>{6, 8}));
  EXPECT_EQ(RankOptions(config, layout, 0).slots, 5);
}

}  // namespace
}  // namespace cria::trainer
