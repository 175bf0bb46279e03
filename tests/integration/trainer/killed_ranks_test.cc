// A rank of a job is killed, or stopped, at a random step: the job ends, names it, leaves no
// process, and goes on from its newest checkpoint to the same bits as a run that nobody disturbed.

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "base/file.h"
#include "base/rng.h"
#include "base/str.h"
#include "tests/integration/train_command.h"
#include "tests/integration/trainer/launch_command.h"
#include "tests/integration/trainer/train_ranks.h"
#include "tests/support/tiny_run.h"

namespace cria {
namespace {

constexpr int64_t kSteps = 40;

struct JobLayout {
  const char* name;
  int ranks;
  std::vector<std::string> settings;
};

TrainRanksOptions OptionsOf(const JobLayout& layout) {
  TrainRanksOptions options = {.ranks = layout.ranks, .settings = layout.settings};
  options.settings.insert(options.settings.end(),
                          {StrCat("steps=", kSteps), "checkpoint.every=2", "checkpoint.keep=2",
                           "train.micro_batch=1", "train.batch=8"});
  return options;
}

const Rng& KillRng() {
  static const Rng* const rng = [] {
    const char* const seed = std::getenv("CRIA_KILL_SEED");
    return new Rng(seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10), StreamOf("killed"));
  }();
  return *rng;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class KilledRanksTest : public testing::TestWithParam<JobLayout> {
 protected:
  void SetUp() override {
    whole_ = FreshDir("whole");
    out_ = FreshDir("disturbed");
    const Ended ended = TrainRanks(whole_, OptionsOf(GetParam())).Wait();
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }

  // Sends the signal to a random rank, some steps after `first_step`; the rank and its pid.
  void Disturb(TrainRanks* job, int64_t first_step, int number) {
    rank_ = static_cast<int>(KillRng().Below(draw_++, static_cast<uint64_t>(GetParam().ranks)));
    const auto later = static_cast<int64_t>(KillRng().Below(draw_++, 8));
    EXPECT_TRUE(job->WaitForStep(first_step + later));
    pids_.clear();
    for (int r = 0; r < GetParam().ranks; ++r) pids_.push_back(job->PidOf(r));
    ASSERT_GT(pids_[static_cast<size_t>(rank_)], 0) << "the job was over before";
    kill(pids_[static_cast<size_t>(rank_)], number);
  }
  std::string NameOfRank() const {
    return StrCat("rank ", rank_, " (pid ", pids_[static_cast<size_t>(rank_)], ")");
  }
  bool AllGone() const {
    for (const pid_t pid : pids_) {
      if (ProcessState(pid) != 'Z') return false;
    }
    return true;
  }
  // The job goes on alone, to the end that the undisturbed one had.
  void ExpectTheSameEnd() {
    const Ended last = TrainRanks(out_, OptionsOf(GetParam())).Wait();
    ASSERT_EQ(last.exit_code, 0) << last.err;
    EXPECT_EQ(MetricsWithoutSpeed(out_), MetricsWithoutSpeed(whole_));
    EXPECT_TRUE(ReadCheckpointBytes(StepDir(out_, kSteps)) ==
                ReadCheckpointBytes(StepDir(whole_, kSteps)));
  }

  std::string whole_, out_;
  uint64_t draw_ = 0;
  int rank_ = 0;
  std::vector<pid_t> pids_;
};

INSTANTIATE_TEST_SUITE_P(
    Layouts, KilledRanksTest,
    testing::Values(JobLayout{"dp2_optimizer", 2, {"parallel.dp=2", "parallel.shard=optimizer"}},
                    JobLayout{"dp4_weights", 4, {"parallel.dp=4", "parallel.shard=weights"}},
                    JobLayout{"tp2_dp2", 4, {"parallel.tp=2", "precision=fp8_delayed"}},
                    JobLayout{"cp2_pp2", 4, {"parallel.cp=2", "parallel.pp=2"}}),
    [](const auto& info) { return info.param.name; });

TEST_P(KilledRanksTest, KillsLeaveNoTrace) {
  for (const int64_t first_step : {1, 11, 21}) {
    SCOPED_TRACE(StrCat("from step ", first_step));
    TrainRanks job(out_, OptionsOf(GetParam()));
    ASSERT_NO_FATAL_FAILURE(Disturb(&job, first_step, SIGKILL));
    const Ended ended = job.Wait();
    ASSERT_FALSE(ended.timed_out) << ended.err;
    EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;
    EXPECT_TRUE(
        ended.err.ends_with("\n") &&
        Contains(ended.err, StrCat("cria launch: ", NameOfRank(), " was killed by SIGKILL")))
        << ended.err;
    EXPECT_TRUE(AllGone());
  }
  ExpectTheSameEnd();
}

TEST_P(KilledRanksTest, AStoppedRankIsNamedAtTheDeadline) {
  // Long enough for a busy machine, short beside the default of five minutes.
  TrainRanksOptions options = OptionsOf(GetParam());
  options.env = {{"CRIA_COMM_TIMEOUT_S", "6"}};
  TrainRanks job(out_, options);
  ASSERT_NO_FATAL_FAILURE(Disturb(&job, 3, SIGSTOP));
  const Ended ended = job.Wait();
  ASSERT_FALSE(ended.timed_out) << ended.err;
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  // The first that gave up says whom it waited for, and the launcher who stood still.
  EXPECT_TRUE(Contains(ended.err, "timeout: after 6 s")) << ended.err;
  EXPECT_TRUE(Contains(ended.err, StrCat("(world ", rank_, ")"))) << ended.err;
  EXPECT_TRUE(Contains(ended.err, StrCat(NameOfRank(), " had been stopped by SIGSTOP\n")))
      << ended.err;
  EXPECT_TRUE(AllGone());
  ExpectTheSameEnd();
}

}  // namespace
}  // namespace cria
