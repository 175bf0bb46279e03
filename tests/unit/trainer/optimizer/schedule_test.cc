// Tables in closed form, and the off-by-one reports of gpt-neox 1373 and Megatron-Bridge 5399.

#include "trainer/optimizer/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace cria::trainer {
namespace {

using Kind = LearningRateSchedule::Kind;

TEST(LearningRateTest, CosineIsTheClosedForm) {
  const LearningRateSchedule s = {
      .kind = Kind::kCosine, .lr = 0.8, .min_lr_ratio = 0.25, .warmup = 4, .steps = 12};
  const double quarter = 0.5 * (1 + std::numbers::sqrt2 / 2);  // (1 + cos(pi/4)) / 2
  const double table[] = {0.2,
                          0.4,
                          0.6,
                          0.8,  // linear, the first over 0, lr at step 4
                          0.2 + 0.6 * 0.5 * (1 + std::cos(std::numbers::pi / 8)),
                          0.2 + 0.6 * quarter,
                          0.2 + 0.6 * 0.5 * (1 + std::cos(3 * std::numbers::pi / 8)),
                          0.5,
                          0.2 + 0.6 * 0.5 * (1 + std::cos(5 * std::numbers::pi / 8)),
                          0.2 + 0.6 * (1 - quarter),
                          0.2 + 0.6 * 0.5 * (1 + std::cos(7 * std::numbers::pi / 8)),
                          0.2};  // min_lr at the last step
  for (int step = 1; step <= 12; ++step) {
    EXPECT_NEAR(LearningRate(s, step), table[step - 1], 1e-15) << "step " << step;
  }
}

TEST(LearningRateTest, WarmupStableDecayIsTheClosedForm) {
  const LearningRateSchedule s = {.kind = Kind::kWsd,
                                  .lr = 1,
                                  .min_lr_ratio = 0.2,
                                  .warmup = 2,
                                  .decay_fraction = 0.4,
                                  .steps = 10};
  const double table[] = {0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2};
  for (int step = 1; step <= 10; ++step) {
    EXPECT_NEAR(LearningRate(s, step), table[step - 1], 1e-15) << "step " << step;
  }
}

TEST(LearningRateTest, WithoutWarmupItStartsAtTheTop) {
  for (const Kind kind : {Kind::kCosine, Kind::kWsd}) {
    LearningRateSchedule s = {.kind = kind, .lr = 0.5, .min_lr_ratio = 0, .warmup = 0, .steps = 10};
    EXPECT_GT(LearningRate(s, 1), 0.48);
    s.warmup = 1;
    EXPECT_EQ(LearningRate(s, 1), 0.5);
    EXPECT_NEAR(LearningRate(s, 10), 0, 1e-16);
  }
}

TEST(LearningRateTest, EdgesHold) {
  for (const Kind kind : {Kind::kCosine, Kind::kWsd}) {
    for (const int64_t steps : {1, 2, 3, 10, 1000}) {
      for (const int64_t warmup : {0, 1, 2, 5, 999}) {
        if (warmup >= steps) continue;
        for (const double decay : {0.0, 0.3, 1.0}) {
          const LearningRateSchedule s = {.kind = kind,
                                          .lr = 1,
                                          .min_lr_ratio = 0.1,
                                          .warmup = warmup,
                                          .decay_fraction = decay,
                                          .steps = steps};
          double previous = 0;
          for (int64_t step = 1; step <= steps; ++step) {
            const double lr = LearningRate(s, step);
            ASSERT_GT(lr, 0) << "step " << step << " of " << steps;
            ASSERT_LE(lr, 1);
            if (step <= warmup && (kind == Kind::kCosine || decay == 0)) {
              ASSERT_GT(lr, previous) << "step " << step;
            }
            if (step > warmup + 1) {
              ASSERT_LE(lr, previous) << "step " << step;
            }
            previous = lr;
          }
          ASSERT_NEAR(LearningRate(s, steps), 0.1, 1e-12)
              << "steps " << steps << " warmup " << warmup << " decay " << decay;
        }
      }
    }
  }
}

TEST(BatchScheduleTest, StagesFollowOneAnother) {
  const BatchSchedule s = {.batch = 16, .ramp_batch = {2, 4, 8}, .ramp_until = {1, 3, 6}};
  const int64_t sizes[] = {2, 4, 4, 8, 8, 8, 16, 16};
  for (int step = 1; step <= 8; ++step) EXPECT_EQ(BatchSize(s, step), sizes[step - 1]);
  EXPECT_EQ(BatchSize({.batch = 7, .ramp_batch = {}, .ramp_until = {}}, 1), 7);
}

// slime PR 1547 and its kin: what is counted twice or not at all after a resume shows as a sum that
// is not the sum of its steps.
TEST(BatchScheduleTest, SamplesAfterIsTheSumOfTheBatches) {
  for (const BatchSchedule& s :
       {BatchSchedule{.batch = 5, .ramp_batch = {}, .ramp_until = {}},
        BatchSchedule{.batch = 16, .ramp_batch = {2, 4, 8}, .ramp_until = {1, 3, 6}},
        BatchSchedule{.batch = 3, .ramp_batch = {9}, .ramp_until = {4}}}) {
    int64_t sum = 0;
    EXPECT_EQ(SamplesAfter(s, 0), 0);
    for (int64_t step = 1; step <= 50; ++step) {
      sum += BatchSize(s, step);
      EXPECT_EQ(SamplesAfter(s, step), sum) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace cria::trainer
