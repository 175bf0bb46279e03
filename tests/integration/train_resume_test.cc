// Where a resumed run goes on: in its own folder, in a new one, from an older step.

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/integration/train_command.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria {
namespace {

class TrainResumeCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    const Ended ended = RunProcess(TrainArgs(run_, {}, {"checkpoint.every=2"}));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    metrics_ = MetricsWithoutSpeed(run_);
    last_ = ReadCheckpointBytes(StepDir(run_, 10));
  }

  const std::string run_ =
      FreshDir(StrCat("run_", testing::UnitTest::GetInstance()->current_test_info()->name()));
  std::vector<std::string> metrics_;
  CheckpointBytes last_;
};

TEST_F(TrainResumeCommandTest, APathAloneGoesOnInItsOwnRun) {
  const Ended ended = RunProcess({kTrainProgram, "--resume", StepDir(run_, 4)});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(MetricsWithoutSpeed(run_), metrics_);
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(run_, 10)) == last_);
  // The checkpoints that it ran over are beside.
  EXPECT_NE(ended.err.find("set aside"), std::string::npos) << ended.err;
  EXPECT_TRUE(Exists(JoinPath(run_, "checkpoints_replaced/step_10")));
}

TEST_F(TrainResumeCommandTest, ANewFolderTakesTheOldRunsConfiguration) {
  const std::string out = FreshDir("new_out");
  const Ended ended = RunProcess({kTrainProgram, "--resume", StepDir(run_, 6), "--out", out});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(MetricsWithoutSpeed(out),
            (std::vector<std::string>{metrics_.begin() + 6, metrics_.end()}));
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(out, 10)) == last_);
  EXPECT_EQ(ReadFile(JoinPath(out, "config.yaml")).value(),
            ReadFile(JoinPath(run_, "config.yaml")).value());
  // The old run is as it was.
  EXPECT_EQ(MetricsWithoutSpeed(run_), metrics_);
  EXPECT_EQ(ListDir(JoinPath(run_, "checkpoints")).value().size(), 5u);
}

TEST_F(TrainResumeCommandTest, AutoAfterAnOlderStepTakesTheNewBranch) {
  ASSERT_EQ(RunProcess({kTrainProgram, "--resume", StepDir(run_, 4), "--steps", "6"}).exit_code, 0);
  EXPECT_EQ(MetricsWithoutSpeed(run_).size(), 6u);
  const Ended ended =
      RunProcess({kTrainProgram, "--out", run_, "--resume", "auto", "--steps", "8"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("going on from " + StepDir(run_, 6)), std::string::npos) << ended.err;
  EXPECT_EQ(MetricsWithoutSpeed(run_).size(), 8u);
}

TEST_F(TrainResumeCommandTest, AFinishedRunHasNothingToDo) {
  const Ended ended = RunProcess({kTrainProgram, "--out", run_, "--resume", "auto"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("no step taken"), std::string::npos) << ended.out;
  EXPECT_EQ(MetricsWithoutSpeed(run_), metrics_);
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(run_, 10)) == last_);
}

TEST_F(TrainResumeCommandTest, AutoWithoutACheckpointBeginsAtStepZero) {
  const std::string out = JoinPath(FreshDir("none_yet"), "out");
  const Ended ended = RunProcess(TrainArgs(out, {"--resume", "auto"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("starting from step 0"), std::string::npos) << ended.err;
  EXPECT_EQ(MetricsWithoutSpeed(out), metrics_);
}

}  // namespace
}  // namespace cria
