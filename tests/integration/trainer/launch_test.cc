// `cria launch`: what ranks get, what becomes of their output, and how a job ends by itself.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/file.h"
#include "base/str.h"
#include "comm/net/fd.h"
#include "tests/integration/trainer/launch_command.h"

namespace cria {
namespace {

std::vector<std::string> SortedLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(LaunchTest, Rank0WritesAsItselfAndTheOthersLinesAreNamed) {
  const Ended ended = RunScript({"-n", "3"}, "echo out $RANK; echo err $RANK >&2");
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.out, "out 0\n");
  EXPECT_EQ(SortedLines(ended.err),
            (std::vector<std::string>{"[rank 1] err 1", "[rank 1] out 1", "[rank 2] err 2",
                                      "[rank 2] out 2", "err 0"}));
}

TEST(LaunchTest, LinesThatComeInPiecesStayLines) {
  const Ended ended = RunScript({"-n", "3"},
                                "i=0; while [ $i -lt 200 ]; do printf 'line %s' $RANK >&2;"
                                "printf ' is whole\\n' >&2; i=$((i+1)); done; printf 'end' >&2");
  EXPECT_EQ(ended.exit_code, 0);
  std::vector<std::string> expected(200, "[rank 1] line 1 is whole");
  expected.push_back("[rank 1] end");
  expected.insert(expected.end(), 200, "[rank 2] line 2 is whole");
  expected.push_back("[rank 2] end");
  expected.insert(expected.end(), 200, "line 0 is whole");
  // Rank 0's last words have no newline; what comes next stands behind them.
  std::string err = ended.err;
  const size_t end_of_0 = [&err] {
    for (size_t at = err.find("end"); at != std::string::npos; at = err.find("end", at + 1)) {
      if (at == 0 || err[at - 1] == '\n') return at;
    }
    return std::string::npos;
  }();
  ASSERT_NE(end_of_0, std::string::npos) << err;
  err.erase(end_of_0, 3);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(SortedLines(err), expected);
}

TEST(LaunchTest, AMegabyteWithoutANewlineArrivesWhole) {
  const Ended ended = RunScript({"-n", "2"}, "head -c 1048576 /dev/zero | tr '\\0' x; exit 0");
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), 'x'), 1 << 20);
  EXPECT_EQ(ended.out.size(), size_t{1} << 20);
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), 'x'), 1 << 20);
  for (const std::string& line : SortedLines(ended.err)) {
    EXPECT_TRUE(line.starts_with("[rank 1] x")) << line.substr(0, 20);
  }
}

TEST(LaunchTest, AReaderThatLeavesEndsNoRank) {
  // The launcher's standard error is a pipe whose reader leaves at once.
  const std::string script = StrCat(
      "{ ", kLaunchProgram,
      " -n 2 -- /bin/sh -c 'head -c 3000000 /dev/zero | tr \"\\0\" \"\\n\" >&2; exit 0'; echo $? "
      "> ",
      FreshDir("reader"), "/code; } 2>&1 | true");
  RunProcess({"/bin/sh", "-c", script});
  EXPECT_EQ(ReadFile(JoinPath(std::getenv("TEST_TMPDIR"), "reader/code")).value_or(""), "0\n");
}

TEST(LaunchTest, LogFoldersHoldWhatTheOthersSay) {
  const std::string logs = JoinPath(FreshDir("logs"), "deep/down");
  const Ended ended =
      RunScript({"-n", "3", "--log-dir", logs},
                "echo out $RANK; echo err $RANK >&2; ready; [ $RANK = 2 ] || exec sleep 1000\n"
                "until [ -e $DIR/pid.0 ] && [ -e $DIR/pid.1 ]; do sleep 0.01; done; exit 3");
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_EQ(ended.out, "out 0\n");
  EXPECT_EQ(ReadFile(JoinPath(logs, "rank_1.out")).value(), "out 1\n");
  EXPECT_EQ(ReadFile(JoinPath(logs, "rank_2.out")).value(), "out 2\n");
  EXPECT_EQ(ReadFile(JoinPath(logs, "rank_2.err")).value(), "err 2\n");
  EXPECT_FALSE(Exists(JoinPath(logs, "rank_0.out")));
  EXPECT_FALSE(Contains(ended.err, "[rank")) << ended.err;
  EXPECT_TRUE(Contains(ended.err, StrCat("exited with code 3; the last lines of ", logs,
                                         "/rank_2.err:\n    err 2\n")))
      << ended.err;
}

TEST(LaunchTest, ProgressOfRank0SeesTheTerminal) {
  const std::string typescript = JoinPath(FreshDir("terminal"), "all");
  const std::string command =
      StrCat(kLaunchProgram, " -n 2 -- /bin/sh -c '[ -t 1 ] && [ -t 2 ] && echo terminal $RANK || ",
             "echo plain $RANK'");
  const Ended ended = RunProcess({"/usr/bin/script", "-qec", command, typescript});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::string all = ReadFile(typescript).value();
  EXPECT_TRUE(Contains(all, "terminal 0\r\n")) << all;
  // The line of rank 0's progress is wiped first.
  EXPECT_TRUE(Contains(all, "\r\x1b[K[rank 1] plain 1\r\n")) << all;
}

TEST(LaunchTest, RanksReadNothing) {
  const Ended ended = RunScript({"-n", "2"}, "cat && readlink /proc/self/fd/0");
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.out, "/dev/null\n");
}

TEST(LaunchTest, ThePortIsFree) {
  LaunchedScript job({"-n", "1"}, "echo $MASTER_PORT > $DIR/port; ready; exec sleep 1000");
  ASSERT_TRUE(job.WaitUntilReady(1));
  const int port = std::atoi(ReadFile(JoinPath(job.dir(), "port")).value().c_str());
  const comm::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_GT(port, 0);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << port;
}

TEST(LaunchTest, TheFirstRankThatFailsDecidesAndIsNamed) {
  LaunchedScript job({"-n", "4"},
                     "ready; if [ $RANK = 2 ]; then i=0; while [ $i -lt 20 ]; do echo word $i >&2; "
                     "i=$((i+1)); done; exit 7; fi; exec sleep 1000");
  const Ended ended = job.launcher().Wait();
  EXPECT_EQ(ended.exit_code, 7);
  std::string last_words;
  for (int i = 10; i < 20; ++i) last_words += StrCat("    word ", i, "\n");
  EXPECT_TRUE(ended.err.ends_with(StrCat("cria launch: rank 2 (pid ", job.PidOf(2),
                                         ") exited with code 7; its last lines:\n", last_words)))
      << ended.err;
  EXPECT_FALSE(Contains(ended.err, "word 9\n    ")) << ended.err;
  EXPECT_TRUE(job.AllGone());
}

TEST(LaunchTest, ARankThatIsKilledEndsAllAndIsNamed) {
  LaunchedScript job({"-n", "3"}, "ready; exec sleep 1000");
  ASSERT_TRUE(job.WaitUntilReady(3));
  kill(job.PidOf(1), SIGKILL);
  const Ended ended = job.launcher().Wait();
  EXPECT_EQ(ended.exit_code, 137);
  EXPECT_EQ(ended.err, StrCat("cria launch: rank 1 (pid ", job.PidOf(1),
                              ") was killed by SIGKILL; ending the other ranks\n"
                              "cria launch: rank 1 (pid ",
                              job.PidOf(1), ") was killed by SIGKILL\n"));
  EXPECT_TRUE(job.AllGone());
}

TEST(LaunchTest, OfTwoThatEndedTogetherTheKilledOneIsTheCause) {
  LaunchedScript job({"-n", "2"}, "trap 'exit 1' TERM; ready; sleep 1000 & wait");
  ASSERT_TRUE(job.WaitUntilReady(2));
  // The launcher sees both ends at once.
  job.launcher().Signal(SIGSTOP);
  ASSERT_TRUE(WaitUntil([&] { return ProcessState(job.launcher().pid()) == 'T'; }));
  kill(job.PidOf(0), SIGTERM);
  kill(job.PidOf(1), SIGKILL);
  ASSERT_TRUE(WaitUntil([&] { return job.AllGone(); }));
  job.launcher().Signal(SIGCONT);
  const Ended ended = job.launcher().Wait();
  EXPECT_EQ(ended.exit_code, 137);
  EXPECT_TRUE(Contains(ended.err, StrCat("rank 1 (pid ", job.PidOf(1), ") was killed by SIGKILL")))
      << ended.err;
}

TEST(LaunchTest, ARankThatDoesNotHeedSigtermIsKilledAfterTheGrace) {
  LaunchedScript job({"-n", "2", "--grace", "0.05"},
                     "trap '' TERM; ready; while [ $RANK = 0 ]; do sleep 0.01; done\n"
                     "until [ -e $DIR/pid.0 ]; do sleep 0.01; done; exit 5");
  const Ended ended = job.launcher().Wait();
  EXPECT_EQ(ended.exit_code, 5);
  EXPECT_TRUE(Contains(ended.err, StrCat("cria launch: rank 0 (pid ", job.PidOf(0),
                                         ") did not end within 0.05 s of SIGTERM: killed\n")))
      << ended.err;
  EXPECT_TRUE(job.AllGone());
}

TEST(LaunchTest, ARankThatWasStoppedIsNamedToo) {
  LaunchedScript job({"-n", "2"}, "ready; exec sleep 1000");
  ASSERT_TRUE(job.WaitUntilReady(2));
  kill(job.PidOf(1), SIGSTOP);
  ASSERT_TRUE(WaitUntil([&] { return ProcessState(job.PidOf(1)) == 'T'; }));
  kill(job.PidOf(0), SIGSEGV);
  const Ended ended = job.launcher().Wait();
  EXPECT_EQ(ended.exit_code, 139);
  EXPECT_TRUE(
      Contains(ended.err, StrCat("rank 1 (pid ", job.PidOf(1), ") had been stopped by SIGSTOP\n")))
      << ended.err;
  EXPECT_TRUE(job.AllGone());
}

TEST(LaunchTest, WhatARankLeavesBehindGoesWithIt) {
  LaunchedScript job({"-n", "2"}, "sleep 1000 & echo $! > $DIR/background.$RANK; ready; exit 0");
  EXPECT_EQ(job.launcher().Wait().exit_code, 0);
  for (int r = 0; r < 2; ++r) {
    const std::string pid = ReadFile(JoinPath(job.dir(), StrCat("background.", r))).value();
    // Its new parent may not have asked for it yet; then it is a zombie.
    EXPECT_TRUE(WaitUntil([&] { return ProcessState(std::atoi(pid.c_str())) == 'Z'; }));
  }
}

TEST(LaunchTest, AProgramThatIsNotThereIsNamed) {
  const Ended missing = RunProcess({kLaunchProgram, "-n", "2", "--", "no/such/program", "--flag"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_EQ(missing.err, "cria launch: cannot run no/such/program: No such file or directory\n");
  const Ended plain_file = RunProcess({kLaunchProgram, "-n", "2", "--", "/etc/passwd"});
  EXPECT_EQ(plain_file.exit_code, 126);
  EXPECT_EQ(plain_file.err, "cria launch: cannot run /etc/passwd: Permission denied\n");
}

TEST(LaunchTest, UsageErrorsExitWith2) {
  const Ended no_command = RunProcess({kLaunchProgram, "-n", "2"});
  EXPECT_EQ(no_command.exit_code, 2);
  EXPECT_TRUE(Contains(no_command.err, "expected -- COMMAND")) << no_command.err;
  EXPECT_EQ(RunProcess({kLaunchProgram, "--", "true"}).exit_code, 2);
  EXPECT_EQ(RunProcess({kLaunchProgram, "-n", "0", "--", "true"}).exit_code, 2);
  EXPECT_EQ(RunProcess({kLaunchProgram, "-n", "2", "true"}).exit_code, 2);
  EXPECT_EQ(RunProcess({kLaunchProgram, "--help"}).exit_code, 0);
  EXPECT_EQ(
      RunProcess({kLaunchProgram, "-n", "2", "--log-dir", "/dev/null/x", "--", "true"}).exit_code,
      1);
}

TEST(LaunchTest, SixtyFourRanks) {
  LaunchedScript job({"-n", "64"}, "echo here; ready; [ $RANK = 63 ] && exit 0; exec sleep 1000");
  ASSERT_TRUE(job.WaitUntilReady(64));
  kill(job.PidOf(40), SIGABRT);
  const Ended ended = job.launcher().Wait();
  EXPECT_EQ(ended.exit_code, 134);
  EXPECT_EQ(ended.out, "here\n");
  for (int r = 1; r < 64; ++r) {
    EXPECT_TRUE(Contains(ended.err, StrCat("[rank ", r, "] here\n"))) << r;
  }
  EXPECT_TRUE(job.AllGone());
}

}  // namespace
}  // namespace cria
