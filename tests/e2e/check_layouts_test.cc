// `cria check layouts` on a few layouts of every kind, in fp32 and in invariant numerics: the whole
// list takes minutes and is the command's own. And what it says of a layout that can't be.

#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"

namespace cria {
namespace {

// The command with a vocabulary as odd as its own, on made-up text.
std::vector<std::string> Command(const std::vector<std::string>& more) {
  std::vector<std::string> command = {"trainer/check/check",
                                      "layouts",
                                      "--json",
                                      "--steps",
                                      "2",
                                      "--set",
                                      "data.path=" + TinyData(),
                                      "--set",
                                      "model.layers=4",
                                      "--set",
                                      "train.batch=3"};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

Json ReportOf(const std::vector<std::string>& more, int exit_code) {
  const Ended ended = RunProcess(Command(more));
  EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
  const auto report = ParseJson(ended.out, "the report");
  EXPECT_TRUE(report.ok()) << Message(report.status()) << "\n" << ended.err;
  return report.ok() ? *report : Json{{"layouts", Json::array()}};
}

TEST(CheckLayoutsTest, EveryKindOfLayoutIsNearOneRank) {
  const Json report =
      ReportOf({"--layouts",
                "one; tp2,cp2; tp4; dp3,optimizer; dp2,pp2,weights; cp2,dp2,gradients; pp4,short; "
                "pp2,chunks2,tp2"},
               0);
  ASSERT_EQ(report["layouts"].size(), 8U);
  EXPECT_EQ(report["ok"], true);
  EXPECT_EQ(report["limit"], 1e-6);
  EXPECT_EQ(report["layouts"][0]["bit_equal"], true);
  for (const Json& row : report["layouts"]) {
    EXPECT_EQ(row["ok"], true) << row.dump();
    EXPECT_LE(row["weights"], 1e-6) << row.dump();
  }
}

// Also where dp gives ranks other numbers of sequences, and where blocks could be cut.
TEST(CheckLayoutsTest, Fp8HasTheScalesOfOneRank) {
  for (const std::string precision : {"fp8_tensorwise", "fp8_blockwise"}) {
    const Json report =
        ReportOf({"--precision", precision, "--layouts", "tp2; tp4; cp2; dp2,pp2,weights"}, 0);
    ASSERT_EQ(report["layouts"].size(), 4U);
    for (const Json& row : report["layouts"]) EXPECT_LE(row["grad_norm"], 5e-3) << row.dump();
  }
}

TEST(CheckLayoutsTest, InvariantNumericsAreBitEqual) {
  const Json report = ReportOf(
      {"--numerics", "invariant", "--layouts", "tp2,dp2,optimizer; cp2,pp2; dp3,weights"}, 0);
  ASSERT_EQ(report["layouts"].size(), 3U);
  for (const Json& row : report["layouts"]) EXPECT_EQ(row["bit_equal"], true) << row.dump();
}

TEST(CheckLayoutsTest, ALayoutThatTheModelDoesNotAllowIsAMistake) {
  const Ended ended = RunProcess(Command({"--layouts", "tp3"}));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("kv heads"), std::string::npos) << ended.err;
  EXPECT_EQ(RunProcess(Command({"--layouts", "tpp3"})).exit_code, 2);
}

}  // namespace
}  // namespace cria
