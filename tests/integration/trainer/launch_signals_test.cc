// `cria launch` and signals: those of its user reach all ranks, and its own death takes them along.

#include <gtest/gtest.h>
#include <signal.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "tests/integration/trainer/launch_command.h"

namespace cria {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct StopSignal {
  int number;
  const char* name;
};

class StopSignalTest : public testing::TestWithParam<StopSignal> {};
INSTANTIATE_TEST_SUITE_P(All, StopSignalTest,
                         testing::Values(StopSignal{SIGINT, "INT"}, StopSignal{SIGTERM, "TERM"},
                                         StopSignal{SIGHUP, "HUP"}, StopSignal{SIGQUIT, "QUIT"}),
                         [](const auto& info) { return info.param.name; });

TEST_P(StopSignalTest, ReachesAllRanksWhichMayEndWell) {
  LaunchedScript job({"-n", "3"}, StrCat("trap 'touch $DIR/got.$RANK; exit 0' ", GetParam().name,
                                         "; ready; sleep 1000 & wait; exit 9"));
  ASSERT_TRUE(job.WaitUntilReady(3));
  job.launcher().Signal(GetParam().number);
  const Ended ended = job.launcher().Wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_FALSE(Contains(ended.err, "cria launch")) << ended.err;
  for (int r = 0; r < 3; ++r) EXPECT_TRUE(Exists(JoinPath(job.dir(), StrCat("got.", r))));
}

TEST_P(StopSignalTest, EndsRanksThatDoNotCatchIt) {
  LaunchedScript job({"-n", "2"}, "ready; exec sleep 1000");
  ASSERT_TRUE(job.WaitUntilReady(2));
  job.launcher().Signal(GetParam().number);
  const Ended ended = job.launcher().Wait();
  EXPECT_EQ(ended.exit_code, 128 + GetParam().number);
  EXPECT_TRUE(Contains(ended.err, StrCat("was killed by SIG", GetParam().name)) &&
              Contains(ended.err, "which was sent to all ranks"))
      << ended.err;
  EXPECT_TRUE(job.AllGone());
}

TEST(LaunchSignalsTest, ASecondSignalKills) {
  LaunchedScript job({"-n", "2"},
                     "trap 'touch $DIR/got.$RANK' INT; ready; while :; do sleep 0.01; done");
  ASSERT_TRUE(job.WaitUntilReady(2));
  job.launcher().Signal(SIGINT);
  ASSERT_TRUE(WaitUntil([&] {
    return Exists(JoinPath(job.dir(), "got.0")) && Exists(JoinPath(job.dir(), "got.1"));
  }));
  EXPECT_FALSE(job.launcher().ended());
  // One that came within a tenth of a second would still be the first.
  const double second_s = RealClock()->MonotonicSeconds() + 0.1;
  ASSERT_TRUE(WaitUntil([&] { return RealClock()->MonotonicSeconds() > second_s; }));
  job.launcher().Signal(SIGINT);
  const Ended ended = job.launcher().Wait();
  EXPECT_EQ(ended.exit_code, 130);
  EXPECT_EQ(ended.err, "cria launch: killed all ranks at the second signal, SIGINT\n");
  EXPECT_TRUE(job.AllGone());
}

TEST(LaunchSignalsTest, SignalsThatComeTogetherAreOne) {
  LaunchedScript job({"-n", "2"},
                     "trap 'exit 0' TERM; trap 'touch $DIR/got.$RANK' INT; ready; "
                     "sleep 1000 & wait; wait");
  ASSERT_TRUE(job.WaitUntilReady(2));
  // While it stands still both arrive.
  job.launcher().Signal(SIGSTOP);
  ASSERT_TRUE(WaitUntil([&] { return ProcessState(job.launcher().pid()) == 'T'; }));
  job.launcher().Signal(SIGINT);
  job.launcher().Signal(SIGTERM);
  job.launcher().Signal(SIGCONT);
  ASSERT_TRUE(WaitUntil([&] {
    return Exists(JoinPath(job.dir(), "got.0")) && Exists(JoinPath(job.dir(), "got.1"));
  }));
  kill(job.PidOf(0), SIGTERM);
  kill(job.PidOf(1), SIGTERM);
  EXPECT_EQ(job.launcher().Wait().exit_code, 0);
}

TEST(LaunchSignalsTest, StopAndContinueGoToAllRanks) {
  LaunchedScript job({"-n", "2"}, "ready; exec sleep 1000");
  ASSERT_TRUE(job.WaitUntilReady(2));
  const pid_t all[] = {job.PidOf(0), job.PidOf(1), job.launcher().pid()};
  const auto all_stopped = [&](bool stopped) {
    for (const pid_t pid : all) {
      if ((ProcessState(pid) == 'T') != stopped) return false;
    }
    return true;
  };
  job.launcher().Signal(SIGTSTP);
  EXPECT_TRUE(WaitUntil([&] { return all_stopped(true); }));
  job.launcher().Signal(SIGCONT);
  EXPECT_TRUE(WaitUntil([&] { return all_stopped(false); }));
  EXPECT_FALSE(job.launcher().ended());
}

TEST(LaunchSignalsTest, AnIgnoredSignalStaysIgnored) {
  const std::string dir = FreshDir("nohup");
  Process shell({"/bin/sh", "-c",
                 StrCat("trap '' HUP; exec ", kLaunchProgram, " -n 1 -- /bin/sh -c 'echo > ", dir,
                        "/ready; until [ -e ", dir, "/go ]; do sleep 0.01; done'")});
  ASSERT_TRUE(WaitUntil([&] { return Exists(JoinPath(dir, "ready")) || shell.ended(); }));
  shell.Signal(SIGHUP);
  shell.Signal(SIGHUP);
  ASSERT_TRUE(WriteFileAtomic(JoinPath(dir, "go"), "").ok());
  EXPECT_EQ(shell.Wait().exit_code, 0);
}

TEST(LaunchSignalsTest, RanksDieWithTheLauncher) {
  LaunchedScript job({"-n", "3"}, "trap '' TERM INT HUP; ready; exec sleep 1000");
  ASSERT_TRUE(job.WaitUntilReady(3));
  EXPECT_FALSE(job.AllGone());
  job.launcher().Signal(SIGKILL);
  EXPECT_EQ(job.launcher().Wait().signal, SIGKILL);
  EXPECT_TRUE(WaitUntil([&] { return job.AllGone(); }));
}

}  // namespace
}  // namespace cria
