// The bench command as a user runs it, on a tiny model.

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/json.h"
#include "tests/support/process.h"

namespace cria::trainer {
namespace {

Ended Bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "trainer/bench/bench");
  return RunProcess(arguments);
}

TEST(BenchCommandTest, TrainPrintsAListWithTheFixedKeys) {
  const Ended run = Bench({"train", "--tiny", "--reps", "1", "--json", "--precision",
                           "fp32,fp8_delayed", "--threads", "1,2"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json list = ParseJson(run.out, "stdout").value();
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[3]["impl"], "cria");
  EXPECT_EQ(list[3]["precision"], "fp8_delayed");
  EXPECT_EQ(list[3]["threads"], 2);
  for (const Json& object : list) {
    EXPECT_EQ(object.size(), 6u);
    for (const char* key : {"tokens_per_s_median", "tokens_per_s_best", "gemm_fraction"}) {
      EXPECT_GT(JsonGet<double>(object, key, "stdout").value(), 0);
    }
  }
}

TEST(BenchCommandTest, TrainPrintsATable) {
  const Ended run = Bench({"train", "--tiny", "--reps", "1", "--precision", "all"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("verified: fp8_blockwise"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("cria fp8_blockwise, 2 threads"), std::string::npos) << run.out;
}

TEST(BenchCommandTest, OpsSharesAddUpToAStep) {
  const Ended run = Bench({"ops", "--tiny", "--reps", "1", "--json", "--precision", "bf16",
                           "--threads", "1", "--cpu-time"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json list = ParseJson(run.out, "stdout").value();
  double share = 0;
  int num_parts = 0;
  for (const Json& object : list) {
    if (object.contains("part")) {
      EXPECT_GT(JsonGet<double>(object, "fraction_of_whole", "stdout").value(), 0);
      ++num_parts;
      continue;
    }
    for (const char* key : {"tokens_per_s_median", "tokens_per_s_best", "gemm_fraction",
                            "ms_median", "gflops_per_s", "gb_per_s", "bound_fraction"}) {
      EXPECT_TRUE(JsonGet<double>(object, key, "stdout").ok()) << key;
    }
    share += object["share"].get<double>();
  }
  EXPECT_EQ(num_parts, 5);
  EXPECT_GT(share, 0.3);
  EXPECT_LE(share, 1.0);
}

TEST(BenchCommandTest, GeneratePrintsARowForEachWorkTypeAndNumberOfThreads) {
  const Ended run = Bench({"generate", "--tiny", "--reps", "2", "--json", "--prompt", "70"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("verified: 70 tokens decoded one by one"), std::string::npos) << run.err;
  const Json list = ParseJson(run.out, "stdout").value();
  ASSERT_EQ(list.size(), 8u);
  for (const Json& object : list) {
    EXPECT_EQ(object["impl"], "cria");
    EXPECT_GT(JsonGet<double>(object, "tokens_per_s_median", "stdout").value(), 0);
    EXPECT_EQ(object.contains("share_of_memory_bound"), object["work"] == "decode");
  }
  EXPECT_EQ(list[7]["type"], "bf16");
  EXPECT_EQ(list[7]["threads"], 2);
}

TEST(BenchCommandTest, LlamaCppAgreesAndIsTimed) {
  const char* python = std::getenv("CRIA_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    GTEST_SKIP() << "CRIA_PEER_PYTHON names no interpreter with llama-cpp-python";
  }
  const Ended run = Bench({"generate", "--tiny", "--reps", "1", "--json", "--peer", python});
  if (run.exit_code == 1 && run.err.find("no llama_cpp") != std::string::npos) {
    GTEST_SKIP() << python << " has no llama-cpp-python (pip builds it in half an hour)";
  }
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("verified: bf16 logits differ by"), std::string::npos) << run.err;
  const Json list = ParseJson(run.out, "stdout").value();
  ASSERT_EQ(list.size(), 16u);
  EXPECT_EQ(list[2]["impl"], "llama.cpp");
  EXPECT_GT(list[2]["ours_over_theirs"].get<double>(), 0);
}

TEST(BenchCommandTest, HelpIsNoError) {
  for (const std::string name : {"train", "ops", "generate", "tokenizer"}) {
    EXPECT_EQ(Bench({name, "--help"}).exit_code, 0);
  }
  EXPECT_EQ(Bench({"--help"}).exit_code, 0);
}

TEST(BenchCommandTest, MistakesOfTheUserAreTwo) {
  EXPECT_EQ(Bench({}).exit_code, 2);
  EXPECT_EQ(Bench({"nothing"}).exit_code, 2);
  EXPECT_EQ(Bench({"train", "--precision", "fp7"}).exit_code, 2);
  EXPECT_EQ(Bench({"train", "--threads", "0"}).exit_code, 2);
  EXPECT_EQ(Bench({"ops", "--reps", "-1"}).exit_code, 2);
}

TEST(BenchCommandTest, APeerThatIsNotThereIsOneLine) {
  const Ended run = Bench({"train", "--tiny", "--reps", "1", "--peer", "/nowhere/python"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.err, "cria bench: run /nowhere/python: No such file or directory\n");
}

TEST(BenchCommandTest, PyTorchAgreesAndIsTimed) {
  const char* python = std::getenv("CRIA_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    GTEST_SKIP() << "CRIA_PEER_PYTHON names no interpreter with PyTorch";
  }
  const Ended run = Bench({"train", "--tiny", "--reps", "1", "--json", "--precision", "fp32",
                           "--threads", "2", "--peer", python});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json list = ParseJson(run.out, "stdout").value();
  ASSERT_GE(list.size(), 2u);
  EXPECT_EQ(list[1]["impl"], "torch_eager");
  EXPECT_GT(list[1]["gemm_fraction"].get<double>(), 0);
}

}  // namespace
}  // namespace cria::trainer
