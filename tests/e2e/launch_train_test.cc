// A training job of two ranks is the same job whoever starts it: `cria launch` or Open MPI's
// mpirun; and one that is asked to stop stops at one step on all ranks.

#include <gtest/gtest.h>
#include <signal.h>

#include "base/file.h"
#include "base/str.h"
#include "tests/integration/train_command.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria {
namespace {

std::vector<std::string> Under(std::vector<std::string> launcher, const std::string& out,
                               const std::vector<std::string>& settings) {
  const std::vector<std::string> train = TrainArgs(out, {"--resume", "auto"}, settings);
  launcher.insert(launcher.end(), train.begin(), train.end());
  return launcher;
}

const std::vector<std::string>& CriaLaunch() {
  static const auto* const words =
      new std::vector<std::string>{"trainer/launch/launch", "-n", "2", "--"};
  return *words;
}

const std::vector<std::string>& MpiRun() {
  static const auto* const words = new std::vector<std::string>{
      "/usr/bin/env", "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"};
  return *words;
}

class LaunchTrainTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Layouts, LaunchTrainTest, testing::Values("dp", "tp", "pp", "cp"),
                         [](const auto& info) { return info.param; });

TEST_P(LaunchTrainTest, MpiRunStartsTheSameJob) {
  const std::vector<std::string> settings = {StrCat("parallel.", GetParam(), "=2"), "steps=8"};
  const std::string ours = FreshDir("ours"), mpi = FreshDir("mpi");
  const Ended launched = RunProcess(Under(CriaLaunch(), ours, settings));
  ASSERT_EQ(launched.exit_code, 0) << launched.err;
  EXPECT_NE(launched.out.find("ranks: 2 ("), std::string::npos) << launched.out;
  const Ended run = RunProcess(Under(MpiRun(), mpi, settings));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("ranks: 2 ("), std::string::npos) << run.out;
  EXPECT_EQ(MetricsWithoutSpeed(mpi), MetricsWithoutSpeed(ours));
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(mpi, 8)) == ReadCheckpointBytes(StepDir(ours, 8)));
}

TEST_P(LaunchTrainTest, ASignalStopsAllRanksAtOneStepAndTheRunGoesOn) {
  const std::vector<std::string> settings = {StrCat("parallel.", GetParam(), "=2"), "steps=150"};
  const std::string whole = FreshDir("whole"), out = FreshDir("stopped");
  ASSERT_EQ(RunProcess(Under(CriaLaunch(), whole, settings)).exit_code, 0);
  const auto num_lines = [&out] { return ReadLines(JoinPath(out, "metrics.jsonl")).size(); };
  Process job(Under(CriaLaunch(), out, settings));
  ASSERT_TRUE(WaitUntil([&] { return job.ended() || num_lines() >= 5; }));
  job.Signal(SIGTERM);
  const Ended stopped = job.Wait();
  ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_NE(stopped.out.find(StrCat("stopped; go on with: ./cria launch -n 2 -- train --out ", out,
                                    " --resume auto\n")),
            std::string::npos)
      << stopped.out;
  const size_t answer = stopped.err.find("stopping after this step");
  EXPECT_NE(answer, std::string::npos) << stopped.err;
  EXPECT_EQ(stopped.err.find("stopping after this step", answer + 1), std::string::npos)
      << "not of every rank: " << stopped.err;
  const auto step = static_cast<int64_t>(num_lines());
  ASSERT_LT(step, 150) << "the run ended before the signal";
  EXPECT_EQ(trainer::FindNewestVerified(JoinPath(out, "checkpoints"), nullptr).value(),
            StepDir(out, step));
  const Ended resumed = RunProcess(Under(CriaLaunch(), out, settings));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(MetricsWithoutSpeed(out), MetricsWithoutSpeed(whole));
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(out, 150)) == ReadCheckpointBytes(StepDir(whole, 150)));
}

// The second rank hashes the optimizer's file.
TEST(LaunchTrainErrorsTest, AnAlteredCheckpointIsPassedOverByAllRanks) {
  const std::vector<std::string> settings = {"parallel.dp=2", "checkpoint.every=2", "steps=4"};
  const std::string out = FreshDir("altered");
  ASSERT_EQ(RunProcess(Under(CriaLaunch(), out, settings)).exit_code, 0);
  const CheckpointBytes last = ReadCheckpointBytes(StepDir(out, 4));
  const std::vector<std::string> metrics = MetricsWithoutSpeed(out);
  const std::string file = JoinPath(StepDir(out, 4), "optimizer.safetensors");
  std::string altered = last.optimizer;
  altered.back() ^= 1;
  ASSERT_TRUE(WriteFileAtomic(file, altered).ok());
  const Ended resumed = RunProcess(Under(CriaLaunch(), out, settings));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const std::string reason = StrCat("passed over rank 1: ", file);
  const size_t said = resumed.err.find(reason);
  EXPECT_NE(said, std::string::npos) << resumed.err;
  EXPECT_EQ(resumed.err.find("passed over", said + 1), std::string::npos) << resumed.err;
  EXPECT_NE(resumed.err.find("going on from " + StepDir(out, 2)), std::string::npos) << resumed.err;
  EXPECT_EQ(MetricsWithoutSpeed(out), metrics);
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(out, 4)) == last);
}

TEST(LaunchTrainErrorsTest, AnImpossibleLayoutIsAUsageErrorOfAllRanks) {
  const Ended ended = RunProcess(Under(CriaLaunch(), FreshDir("error"), {"parallel.tp=3"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("cria train: "), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace cria
