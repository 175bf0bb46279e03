// What a job will need, said without allocating it, and what it then uses.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/str.h"
#include "tests/integration/train_command.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"

namespace cria {
namespace {

TEST(TrainPlanTest, NamesTheParametersOfTheLargeModels) {
  for (const auto& [name, parameters] :
       {std::pair("llama3_8b",
                  "parameters 8030261248 (8.03 B): 32 layers, dim 4096, 32 heads (8 kv)"),
        std::pair("llama3_70b", "parameters 70553706496 (70.55 B): 80 layers"),
        std::pair("llama3_405b", "parameters 405853388800 (405.85 B): 126 layers")}) {
    const Ended ended = RunProcess({kTrainProgram, name, "--plan"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_NE(ended.out.find(parameters), std::string::npos) << ended.out;
    for (const char* what :
         {"flops a token", "weights (fp32)", "gradients", "optimizer", "activations", "total"}) {
      EXPECT_NE(ended.out.find(what), std::string::npos) << what;
    }
    EXPECT_EQ(ended.err, "");
  }
}

TEST(TrainPlanTest, AnyModelCanBePlannedByFlags) {
  const std::string out = JoinPath(FreshDir("plan"), "out");
  const Ended ended = RunProcess(TrainArgs(out, {"--plan"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("2 layers, dim 32, 4 heads (2 kv) of 8, ffn 48, vocabulary 300, tied"),
            std::string::npos)
      << ended.out;
  EXPECT_FALSE(Exists(out)) << "a plan writes nothing";
}

// A number and its unit in front of `word`: "memory: 131.2 MiB planned, 130.9 MiB used".
double BytesBefore(const std::string& text, const std::string& word) {
  const size_t line = text.find("\nmemory: ");
  const size_t at = text.find(word, line);
  if (line == std::string::npos || at == std::string::npos) return NAN;
  size_t begin = text.find_last_of(":,", at) + 1;
  double value = 0;
  char unit[8] = "";
  if (std::sscanf(text.c_str() + begin, "%lf %7s", &value, unit) != 2) return NAN;
  const std::string u = unit;
  return value * (u == "GiB" ? 1024.0 * 1024 * 1024 : u == "MiB" ? 1024.0 * 1024 : 1024.0);
}

class MemoryPlanTest : public testing::TestWithParam<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Kinds, MemoryPlanTest,
                         testing::Values(std::pair("fp32", "none"), std::pair("bf16", "none"),
                                         std::pair("fp32", "full"),
                                         std::pair("fp8_tensorwise", "selective")),
                         [](const auto& info) {
                           return std::string(info.param.first) + "_" + info.param.second;
                         });

// Large enough that a process's own memory is small beside it.
const std::vector<std::string>& LargeModel() {
  static const auto* const settings = new std::vector<std::string>{
      "train.warmup=1",   "model.layers=6",      "model.dim=512",           "model.heads=8",
      "model.kv_heads=4", "model.ffn=1024",      "model.max_positions=256", "train.seq=64",
      "train.batch=4",    "train.micro_batch=4", "train.eval_samples=1"};
  return *settings;
}

void ExpectPlanned(const Ended& ended, double bytes_min) {
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const double planned = BytesBefore(ended.out, " planned");
  const double used = BytesBefore(ended.out, " used");
  EXPECT_GT(used, bytes_min) << ended.out;
  EXPECT_NEAR(planned / used, 1, 0.05) << ended.out;
}

TEST_P(MemoryPlanTest, IsWithinFivePercentOfWhatIsUsed) {
  const auto [precision, recompute] = GetParam();
  std::vector<std::string> settings = LargeModel();
  settings.push_back(StrCat("precision=", precision));
  settings.push_back(StrCat("train.recompute=", recompute));
  ExpectPlanned(RunProcess(TrainArgs(FreshDir("memory"), {"--steps", "2"}, settings)), 100e6);
}

using Sharded = std::pair<int, const char*>;
class RankMemoryPlanTest : public testing::TestWithParam<Sharded> {};
INSTANTIATE_TEST_SUITE_P(Shards, RankMemoryPlanTest,
                         testing::Values(Sharded(2, "none"), Sharded(2, "optimizer"),
                                         Sharded(2, "gradients"), Sharded(2, "weights"),
                                         Sharded(4, "none"), Sharded(4, "optimizer"),
                                         Sharded(4, "gradients"), Sharded(4, "weights")),
                         [](const auto& info) {
                           return StrCat("dp", info.param.first, "_", info.param.second);
                         });

TEST_P(RankMemoryPlanTest, TheLargestRankIsWithinFivePercentOfItsPlan) {
  const auto [ranks, shard] = GetParam();
  std::vector<std::string> settings = LargeModel();
  settings.push_back(StrCat("parallel.dp=", ranks));
  settings.push_back(StrCat("parallel.shard=", shard));
  std::vector<std::string> command = {"trainer/launch/launch", "-n", StrCat(ranks), "--"};
  for (const std::string& word : TrainArgs(FreshDir("memory"), {"--steps", "2"}, settings)) {
    command.push_back(word);
  }
  const Ended ended = RunProcess(command);
  ExpectPlanned(ended, 50e6);
  EXPECT_NE(ended.out.find(", the most)"), std::string::npos) << ended.out;
}

}  // namespace
}  // namespace cria
