// The benchmark with all libraries in one run: every operation, type and reduction verified (which
// is also the test of the MPI backend on several ranks), groups at once, and how it fails.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/json.h"
#include "tests/support/process.h"

namespace cria {
namespace {

Json RowsOf(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"comm/comm", "bench", "--json", "-n", "1",
                                      "-w",        "1",     "-m",     "1"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const Ended ended = RunProcess(command);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto rows = ParseJson(ended.out, "the benchmark's rows");
  EXPECT_TRUE(rows.ok()) << rows.status() << "\n" << ended.err;
  return rows.ok() ? *rows : Json::array();
}

void ExpectRight(const Json& rows) {
  for (const Json& row : rows) {
    EXPECT_EQ(row["wrong"], 0) << row.dump();
    EXPECT_GT(row["time_us"], 0) << row.dump();
  }
}

TEST(CommBenchTest, EveryOperationTypeAndReductionIsRightOnThreeRanks) {
  const Json rows = RowsOf({"--impl", "cria,mpi", "--ranks", "3", "--op", "all", "-d", "all", "-o",
                            "all", "-b", "1000", "--buffers", "both"});
  ExpectRight(rows);
  std::map<std::string, std::set<std::string>> operations;
  for (const Json& row : rows) operations[row["impl"]].insert(row["op"]);
  EXPECT_EQ(operations["cria"].size(), 13U);
  EXPECT_EQ(operations["mpi"].size(), 13U);
}

TEST(CommBenchTest, AllLibrariesShareARun) {
  const Json rows = RowsOf({"--impl", "cria,mpi,gloo", "-b", "8", "-e", "64K", "-f", "8192"});
  ExpectRight(rows);
  ASSERT_EQ(rows.size(), 12U);  // 3 libraries, 2 sizes, out of place and in place
  for (const Json& row : rows) {
    EXPECT_EQ(row["op"], "all_reduce");
    EXPECT_EQ(row.contains("times_mpi"), row["impl"] != "mpi");
    EXPECT_EQ(row.contains("times_gloo"), row["impl"] != "gloo");
    EXPECT_GT(row["bound_us"], 0);
  }
}

TEST(CommBenchTest, GroupsRunAtOnce) {
  const Json rows = RowsOf({"--impl", "cria,gloo", "--ranks", "4", "--split", "MOD 2", "-b", "4K",
                            "--op", "all_reduce,all_gather"});
  ExpectRight(rows);
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0]["ranks"], 2);
}

TEST(CommBenchTest, MovesOverTcpInsideAHost) {
  ExpectRight(RowsOf({"--transport", "tcp", "-b", "100K", "--op", "all"}));
}

TEST(CommAbortBenchTest, EveryWaitOfEveryOperationEndsByTheAbort) {
  const Ended ended = RunProcess({"comm/comm", "abort-bench", "--ranks", "3", "--transport",
                                  "auto,tcp", "--trials", "8", "--json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto rows = ParseJson(ended.out, "the benchmark's rows");
  ASSERT_TRUE(rows.ok()) << rows.status() << "\n" << ended.err;
  ASSERT_EQ(rows->size(), 26U);  // 13 operations over each transport
  for (const Json& row : *rows) {
    EXPECT_GE(row["waits"], 1) << row.dump();
    EXPECT_LE(row["waits"], 16) << row.dump();
    EXPECT_GE(row["greatest_ms"], row["median_ms"]) << row.dump();
  }
}

TEST(CommBenchTest, UsageErrorsExitWith2) {
  EXPECT_EQ(RunProcess({"comm/comm", "bench", "--op", "all_redude"}).exit_code, 2);
  EXPECT_EQ(RunProcess({"comm/comm", "bench", "-b", "8", "-e", "4"}).exit_code, 2);
  EXPECT_EQ(RunProcess({"comm/comm", "bench", "--split", "XOR 2"}).exit_code, 2);
  EXPECT_EQ(RunProcess({"comm/comm", "abort-bench", "--ranks", "1"}).exit_code, 2);
}

TEST(CommBenchTest, ARankThatCannotGoOnEndsTheRun) {
  // No rank gets a connection: each says so, and the run is over.
  const Ended ended = RunProcess({"comm/comm", "bench", "--impl", "cria", "--transport", "tcp"},
                                 {.env = {{"CRIA_COMM_INTERFACE", "no-such-interface"}}});
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_NE(ended.err.find("no-such-interface"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace cria
