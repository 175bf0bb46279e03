// Ctrl-C and SIGTERM: the step is finished, saved, exit 0, and the rest is the same bits; a second
// one ends at once.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <sstream>

#include "base/file.h"
#include "tests/integration/train_command.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria {
namespace {

int64_t NumLines(const std::string& out) {
  return static_cast<int64_t>(ReadLines(JoinPath(out, "metrics.jsonl")).size());
}

// CPU time of a process in the system's ticks; 0 when it is gone.
int64_t CpuTicks(pid_t pid) {
  const StatusOr<std::string> stat = ReadFile(StrCat("/proc/", pid, "/stat"));
  if (!stat.ok()) return 0;
  std::istringstream fields(stat->substr(stat->rfind(')') + 2));
  std::string field;
  for (int i = 3; i < 14; ++i) fields >> field;  // utime and stime are fields 14 and 15
  int64_t user = 0, system = 0;
  fields >> user >> system;
  return user + system;
}

class SignalTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Both, SignalTest, testing::Values(SIGINT, SIGTERM), [](const auto& info) {
  return info.param == SIGINT ? "Interrupt" : "Terminate";
});

TEST_P(SignalTest, SavesThatStepAndSaysHowToGoOn) {
  const std::string out = FreshDir("stopped");
  Process train(TrainArgs(out, {}, {"steps=3000"}));
  ASSERT_TRUE(WaitUntil([&] { return train.ended() || NumLines(out) >= 20; }));
  train.Signal(GetParam());
  const Ended stopped = train.Wait();
  ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_NE(stopped.err.find("stopping after this step"), std::string::npos) << stopped.err;
  EXPECT_NE(
      stopped.out.find(StrCat("stopped; go on with: ./cria train --out ", out, " --resume auto\n")),
      std::string::npos)
      << stopped.out;
  const int64_t step = NumLines(out);
  EXPECT_GE(step, 20);
  ASSERT_LT(step, 3000) << "the run ended before the signal";
  EXPECT_EQ(trainer::FindNewestVerified(JoinPath(out, "checkpoints"), nullptr).value(),
            StepDir(out, step));
}

TEST_P(SignalTest, TheResumedRunEndsWithTheSameBits) {
  const std::string whole = FreshDir("whole"), out = FreshDir("resumed");
  const std::vector<std::string> settings = {"steps=150", "precision=fp8_delayed"};
  ASSERT_EQ(RunProcess(TrainArgs(whole, {}, settings)).exit_code, 0);
  Process train(TrainArgs(out, {}, settings));
  ASSERT_TRUE(WaitUntil([&] { return train.ended() || NumLines(out) >= 5; }));
  train.Signal(GetParam());
  ASSERT_EQ(train.Wait().exit_code, 0);
  EXPECT_LT(NumLines(out), 150);
  const Ended resumed = RunProcess({kTrainProgram, "--out", out, "--resume", "auto"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(MetricsWithoutSpeed(out), MetricsWithoutSpeed(whole));
  EXPECT_TRUE(ReadCheckpointBytes(StepDir(out, 150)) == ReadCheckpointBytes(StepDir(whole, 150)));
}

TEST(SecondSignalTest, EndsAtOnceAndTheEarlierCheckpointIsGood) {
  const std::string out = FreshDir("twice");
  // A step of a batch this large takes seconds: the second signal comes inside it.
  Process train(TrainArgs(out, {},
                          {"steps=1000", "train.ramp_batch=[4]", "train.ramp_until=[3]",
                           "train.batch=200000", "checkpoint.every=3"}));
  ASSERT_TRUE(WaitUntil([&] { return train.ended() || Exists(StepDir(out, 3)); }));
  // What works for a third of a second after that save is step 4.
  const int64_t ticks = CpuTicks(train.pid());
  ASSERT_TRUE(WaitUntil(
      [&] { return CpuTicks(train.pid()) > ticks + sysconf(_SC_CLK_TCK) / 3 || train.ended(); }));
  train.Signal(SIGINT);
  ASSERT_TRUE(WaitUntil([&] {
    return train.ended() || train.err().find("stopping after this step") != std::string::npos;
  }));
  train.Signal(SIGINT);
  const Ended ended = train.Wait();
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  EXPECT_EQ(NumLines(out), 3);
  EXPECT_TRUE(trainer::LoadCheckpoint(StepDir(out, 3)).ok());
}

}  // namespace
}  // namespace cria
