// `cria bench train --layouts` on the tiny job: a row for one process and for each layout of two
// ranks, with figures that can be.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "base/str.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"

namespace cria {
namespace {

std::vector<std::string> Command(const std::vector<std::string>& more) {
  std::vector<std::string> command = {"trainer/bench/bench", "train", "--layouts", "--reps", "1"};
  for (const std::string& setting : TinySettings(TinyData())) {
    command.insert(command.end(), {"--set", setting});
  }
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

const std::vector<std::string>& Layouts() {
  static const auto* const names = new std::vector<std::string>{
      "dp2", "dp2,optimizer", "dp2,gradients", "dp2,weights", "tp2", "cp2", "pp2"};
  return *names;
}

// A share of something.
void ExpectShare(const Json& row, const char* key) {
  ASSERT_TRUE(row[key].is_number()) << row.dump();
  EXPECT_GE(row[key], 0) << row.dump();
  EXPECT_LE(row[key], 1) << row.dump();
}

TEST(BenchLayoutsTest, AListWithARowForOneProcessAndEachLayout) {
  const Ended ended = RunProcess(Command({"--json", "--set", "steps=4"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("verified: every layout has the losses of one process"),
            std::string::npos)
      << ended.err;
  EXPECT_NE(ended.err.find("round 1 of 1"), std::string::npos) << ended.err;
  const auto rows = ParseJson(ended.out, "the benchmark's rows");
  ASSERT_TRUE(rows.ok()) << Message(rows.status()) << "\n" << ended.out;
  ASSERT_EQ(rows->size(), 1 + Layouts().size());
  for (size_t i = 0; i < rows->size(); ++i) {
    const Json& row = (*rows)[i];
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(row["name"], i == 0 ? "one process, 2 threads" : Layouts()[i - 1]);
    EXPECT_EQ(row["ranks"], i == 0 ? 1 : 2);
    EXPECT_EQ(row["threads"], i == 0 ? 2 : 1);
    EXPECT_GT(row["tokens_per_s"], 0);
    EXPECT_GE(row["spread"], 0);
    EXPECT_GT(row["times_one_process"], 0);
    ExpectShare(row, "comm_share");
    ExpectShare(row, "comm_overlap");
    EXPECT_GT(row["planned_bytes"], 0);
    EXPECT_GT(row["used_bytes"], 0);
  }
  EXPECT_EQ((*rows)[0]["times_one_process"], 1);
  EXPECT_EQ((*rows)[0]["comm_share"], 0);
  for (size_t i = 1; i < rows->size(); ++i) {
    EXPECT_GT((*rows)[i]["comm_share"], 0) << (*rows)[i].dump();
  }
  // One that shards more needs no more: none, optimizer, gradients, weights.
  EXPECT_LT((*rows)[2]["planned_bytes"], (*rows)[1]["planned_bytes"]);
}

TEST(BenchLayoutsTest, ATableForPeople) {
  const Ended ended = RunProcess(Command({"--set", "steps=3"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  size_t at = ended.out.find("tok/s");
  ASSERT_NE(at, std::string::npos) << ended.out;
  for (const std::string& name : Layouts()) {
    at = ended.out.find("\n" + name + " ", at);
    ASSERT_NE(at, std::string::npos) << name << " in\n" << ended.out;
  }
}

TEST(BenchLayoutsTest, MistakesOfTheUserAreTwo) {
  const Ended ended = RunProcess(Command({"--set", "steps=2"}));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("steps: 2, of which 2 are not counted"), std::string::npos) << ended.err;
  EXPECT_EQ(RunProcess(Command({"--set", "no.such=1"})).exit_code, 2);
  EXPECT_EQ(RunProcess({"trainer/bench/bench", "train", "--set", "steps=5"}).exit_code, 2);
}

}  // namespace
}  // namespace cria
