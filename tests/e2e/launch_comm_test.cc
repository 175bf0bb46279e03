// Ranks that somebody else starts find each other by their environment: those of `cria launch`, and
// those of Open MPI's mpirun.

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/str.h"
#include "tests/support/process.h"

namespace cria {
namespace {

Json RowsOf(std::vector<std::string> launcher, const std::vector<std::string>& arguments) {
  for (const char* word : {"comm/comm", "bench", "--json", "-n", "1", "-w", "1", "-m", "1"}) {
    launcher.push_back(word);
  }
  launcher.insert(launcher.end(), arguments.begin(), arguments.end());
  const Ended ended = RunProcess(launcher);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto rows = ParseJson(ended.out, "the benchmark's rows");
  EXPECT_TRUE(rows.ok()) << rows.status() << "\n" << ended.out;
  return rows.ok() ? *rows : Json::array();
}

void ExpectRight(const Json& rows, int ranks) {
  EXPECT_FALSE(rows.empty());
  for (const Json& row : rows) {
    EXPECT_EQ(row["ranks"], ranks) << row.dump();
    EXPECT_EQ(row["wrong"], 0) << row.dump();
  }
}

std::vector<std::string> CriaLaunch(int ranks) {
  return {"trainer/launch/launch", "-n", StrCat(ranks), "--"};
}

std::vector<std::string> MpiRun(int ranks) {
  return {"/usr/bin/env", "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", StrCat(ranks)};
}

TEST(LaunchCommTest, CriaLaunch) {
  ExpectRight(RowsOf(CriaLaunch(3), {"-b", "1000", "--op", "all"}), 3);
}

TEST(LaunchCommTest, MpiRun) {
  ExpectRight(RowsOf(MpiRun(2), {"-b", "1000", "--impl", "cria,mpi,gloo"}), 2);
}

// The launcher's variables are those of its ranks, whatever it was started by.
TEST(LaunchCommTest, CriaLaunchUnderMpiRun) {
  std::vector<std::string> both = MpiRun(1);
  both.insert(both.end(), {"--bind-to", "none"});  // to the core of mpirun's one rank
  for (const std::string& word : CriaLaunch(2)) both.push_back(word);
  ExpectRight(RowsOf(both, {"-b", "1000"}), 2);
}

TEST(LaunchCommTest, SaysWhatTheLauncherContradicts) {
  std::vector<std::string> command = CriaLaunch(2);
  command.insert(command.end(), {"comm/comm", "bench", "--ranks", "3"});
  const Ended ended = RunProcess(command);
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("--ranks 3, but this is rank"), std::string::npos) << ended.err;
  command.resize(command.size() - 2);
  command.insert(command.end(), {"--impl", "mpi"});
  EXPECT_EQ(RunProcess(command).exit_code, 2);
}

TEST(LaunchCommTest, ARankThatCannotJoinEndsTheRunAndIsNamed) {
  std::vector<std::string> command = CriaLaunch(2);
  command.insert(command.end(), {"/bin/sh", "-c",
                                 "[ $RANK = 1 ] && export CRIA_COMM_INTERFACE=no-such-interface; "
                                 "exec comm/comm bench --transport tcp -b 8"});
  const Ended ended = RunProcess(command);
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("there is no interface \"no-such-interface\""), std::string::npos)
      << ended.err;
}

}  // namespace
}  // namespace cria
