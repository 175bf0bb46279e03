// A rank whose results are no numbers from a random product on: the steps are skipped on all ranks,
// the run ends with the rank named, and goes on from its last good checkpoint, on ranks that work,
// to the same bits as a run that nobody disturbed.

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "base/rng.h"
#include "base/str.h"
#include "tests/integration/train_command.h"
#include "tests/integration/trainer/train_ranks.h"
#include "tests/support/tiny_run.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria {
namespace {

constexpr int64_t kSteps = 30;

struct NanJob {
  const char* name;
  std::vector<std::string> settings;
  int ranks_of_a_batch;  // that see the same loss: tp * cp * pp
};

class NanRankTest : public testing::TestWithParam<NanJob> {};

INSTANTIATE_TEST_SUITE_P(
    Layouts, NanRankTest,
    testing::Values(NanJob{"dp4", {"parallel.dp=4", "parallel.shard=optimizer"}, 1},
                    NanJob{"tp2_dp2", {"parallel.tp=2"}, 2},
                    NanJob{"pp2_dp2", {"parallel.pp=2"}, 2},
                    NanJob{"cp2_dp2", {"parallel.cp=2", "parallel.shard=weights"}, 2}),
    [](const auto& info) { return info.param.name; });

TEST_P(NanRankTest, EndsTheRunNamedAndLeavesNoTrace) {
  const char* const seed = std::getenv("CRIA_KILL_SEED");
  const Rng rng(seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10), StreamOf(GetParam().name));
  TrainRanksOptions options = {.ranks = 4, .settings = GetParam().settings};
  options.settings.insert(options.settings.end(),
                          {StrCat("steps=", kSteps), "checkpoint.every=2", "train.max_bad_steps=3",
                           "train.batch=8", "train.micro_batch=2"});
  const std::string whole = FreshDir("whole"), out = FreshDir("broken");
  const Ended undisturbed = TrainRanks(whole, options).Wait();
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;

  const auto rank = static_cast<int>(rng.Below(0, 4));
  TrainRanksOptions broken = options;
  broken.program = "tests/integration/trainer/nan_rank";
  broken.env = {{"NAN_RANK", StrCat(rank)}, {"NAN_PRODUCT", StrCat(300 + rng.Below(1, 200))}};
  const Ended ended = TrainRanks(out, broken).Wait();
  ASSERT_FALSE(ended.timed_out) << ended.err;
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_NE(ended.err.find("after 3 steps in a row that were not finite (the last: "),
            std::string::npos)
      << ended.err;
  // The loss of the ranks that share the broken one's sequences.
  const int first = rank - rank % GetParam().ranks_of_a_batch;
  bool named = false;
  for (int r = first; r < first + GetParam().ranks_of_a_batch; ++r) {
    named |= ended.err.find(StrCat("the loss on rank ", r, ");")) != std::string::npos;
  }
  EXPECT_TRUE(named) << "rank " << rank << "\n" << ended.err;
  const int64_t last_step = NumSteps(out);
  EXPECT_GE(last_step, 3);
  EXPECT_LT(last_step, kSteps);
  EXPECT_TRUE(trainer::FindNewestVerified(JoinPath(out, "checkpoints"), nullptr).ok()) << ended.err;

  const Ended resumed = TrainRanks(out, options).Wait();
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("going on from "), std::string::npos) << resumed.err;
  EXPECT_EQ(MetricsWithoutSpeed(out), MetricsWithoutSpeed(whole));
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(out, kSteps)) ==
              ReadCheckpointBytes(StepDir(whole, kSteps)));
}

}  // namespace
}  // namespace cria
