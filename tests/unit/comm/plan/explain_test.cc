#include "comm/plan/explain.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/json.h"
#include "comm/plan/explain_command.h"

namespace cria::comm {
namespace {

GroupTopology TwoHosts() { return {.host_of_rank = {0, 0, 1, 1}}; }

TEST(ExplainTest, ListsAllAlgorithmsAndTheRounds) {
  const GroupTopology topology = TwoHosts();
  const auto explanation =
      Explain({.kind = OpKind::kAllReduce, .count = 1 << 20, .topology = &topology, .rank = 1});
  ASSERT_TRUE(explanation.ok()) << Message(explanation.status());
  EXPECT_EQ(explanation->candidates.size(), static_cast<size_t>(kNumAlgorithms));
  const std::string text = TextOf(*explanation);
  for (int i = 0; i < kNumAlgorithms; ++i) {
    EXPECT_NE(text.find(Name(static_cast<Algorithm>(i))), std::string::npos) << text;
  }
  EXPECT_NE(text.find("* hierarchical"), std::string::npos) << text;
  EXPECT_NE(text.find("has no all_reduce"), std::string::npos) << text;
  EXPECT_NE(text.find("4 ranks on 2 hosts"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1's rounds"), std::string::npos) << text;
  EXPECT_NE(text.find("to 3"), std::string::npos) << text;  // its partner on the other host
}

TEST(ExplainTest, StarsTheAlgorithmThatWasAskedFor) {
  const GroupTopology topology = TwoHosts();
  const PlanRequest request{.kind = OpKind::kAllReduce, .count = 100, .topology = &topology};
  const auto explanation = Explain(request, {{OpKind::kAllReduce, Algorithm::kRing}});
  ASSERT_TRUE(explanation.ok());
  EXPECT_NE(TextOf(*explanation).find("* ring"), std::string::npos);
  EXPECT_FALSE(Explain(request, {{OpKind::kAllReduce, Algorithm::kPairwise}}).ok());
}

TEST(ExplainTest, PutsEqualRoundsOnOneLineAndEndsAtTheLimit) {
  GroupTopology topology;
  for (int rank = 0; rank < 64; ++rank) topology.host_of_rank.push_back(rank);
  const PlanRequest request{.kind = OpKind::kAllReduce, .count = 64 * 1024, .topology = &topology};
  const auto ring = Explain(request, {{OpKind::kAllReduce, Algorithm::kRing}});
  ASSERT_TRUE(ring.ok());
  const std::string text = TextOf(*ring);
  EXPECT_NE(text.find("0-62 "), std::string::npos) << text;
  EXPECT_NE(text.find("63-125 "), std::string::npos) << text;
  EXPECT_NE(TextOf(*ring, 1).find("..."), std::string::npos);
}

TEST(ExplainTest, GivesTheCandidatesAsJson) {
  const GroupTopology topology = TwoHosts();
  const auto explanation =
      Explain({.kind = OpKind::kAllGather, .count = 1000, .topology = &topology});
  ASSERT_TRUE(explanation.ok());
  const auto text = JsonOf(*explanation);
  ASSERT_TRUE(text.ok());
  const auto json = ParseJson(*text, "explain");
  ASSERT_TRUE(json.ok()) << Message(json.status());
  EXPECT_EQ((*json)["op"], "all_gather");
  EXPECT_EQ((*json)["hosts"], 2);
  EXPECT_EQ((*json)["candidates"].size(), static_cast<size_t>(kNumAlgorithms));
  EXPECT_EQ((*json)["candidates"][0]["algorithm"], (*json)["chosen"]);
  EXPECT_GT((*json)["candidates"][0]["total_us"].get<double>(), 0);
  EXPECT_TRUE((*json)["candidates"].back().contains("why_not"));
}

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

Outcome RunCommand(std::vector<std::string> arguments) {
  CLI::App app;
  Outcome outcome;
  AddExplainCommand(&app, &outcome.exit_code);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  reversed.emplace_back("explain");
  app.parse(reversed);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(ExplainCommandTest, ExplainsAndChecks) {
  const Outcome outcome = RunCommand(
      {"--bytes", "64K", "--ranks", "7", "--hosts", "3", "--algo", "halving_doubling", "--check"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("* halving_doubling"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.err.find("checked: each element once"), std::string::npos) << outcome.err;
}

TEST(ExplainCommandTest, TakesADescribedCluster) {
  const Outcome outcome =
      RunCommand({"--bytes", "64M", "--ranks", "24576", "--cluster", "llama3_24k"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("24576 ranks on 3072 hosts"), std::string::npos) << outcome.out;
}

TEST(ExplainCommandTest, EveryOperationHasAPlan) {
  for (const char* op : {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
                         "all_to_all", "gather", "scatter", "barrier"}) {
    const Outcome outcome =
        RunCommand({"--op", op, "--bytes", "4K", "--ranks", "6", "--hosts", "2", "--check"});
    EXPECT_EQ(outcome.exit_code, 0) << op << ": " << outcome.err;
  }
}

TEST(ExplainCommandTest, NamesWhatIsWrong) {
  const auto error = [](std::vector<std::string> arguments, const char* words) {
    const Outcome outcome = RunCommand(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
  };
  error({"--op", "reduceall"}, "is none of all_reduce");
  error({"--op", "send"}, "send is not planned");
  error({"--bytes", "many"}, "--bytes many");
  error({"--bytes", "1Q"}, "K, M, G, T");
  error({"--dtype", "float8_e4m3"}, "only travels");
  error({"--algo", "pairwise"}, "has no all_reduce");
  error({"--ranks", "2", "--hosts", "3"}, "--hosts 3 for --ranks 2");
  error({"--ranks", "2", "--root", "2", "--op", "reduce"}, "root 2");
  error({"--ranks", "30000", "--cluster", "llama3_24k"}, "llama3_24k has 3072");
}

}  // namespace
}  // namespace cria::comm
