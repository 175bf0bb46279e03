#include "trainer/bench/tokenizer_bench.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "base/json.h"

namespace cria::trainer {
namespace {

std::string WriteText(const std::string& text) {
  const std::string path = JoinPath(std::getenv("TEST_TMPDIR"), "text");
  EXPECT_TRUE(WriteFileAtomic(path, text).ok());
  return path;
}

std::string Sample() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += StrCat("the house number ", i * i, " stands here\n");
  return text;
}

TokenizerBenchOptions Options(const std::string& text_path) {
  TokenizerBenchOptions options;
  options.text_path = text_path;
  options.vocab_size = 300;
  options.num_rounds = 2;
  return options;
}

TEST(TokenizerBenchTest, PrintsARowForEachWork) {
  TokenizerBenchOptions options = Options(WriteText(Sample()));
  options.is_json = true;
  testing::internal::CaptureStdout();
  const Status status = RunTokenizerBench(options);
  const std::string out = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << Message(status);
  const StatusOr<Json> rows = ParseJson(out, "the bench's output");
  ASSERT_TRUE(rows.ok()) << out;
  ASSERT_EQ(rows->size(), 4u);
  for (const Json& row : *rows) {
    EXPECT_EQ(row["impl"], "cria");
    EXPECT_GT(row["mb_per_s_median"].get<double>(), 0);
  }
}

TEST(TokenizerBenchTest, AVocabularyLargerThanTheTextAllowsIsAnError) {
  EXPECT_FALSE(RunTokenizerBench(Options(WriteText("short"))).ok());
  EXPECT_FALSE(RunTokenizerBench(Options("/nonexistent/text")).ok());
}

TEST(TokenizerBenchTest, PeersGiveTheSameIds) {
  const char* const python = std::getenv("CRIA_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    GTEST_SKIP() << "CRIA_PEER_PYTHON names no interpreter with tiktoken and tokenizers";
  }
  TokenizerBenchOptions options = Options(WriteText(Sample()));
  options.peer_python = python;
  testing::internal::CaptureStdout();
  const Status status = RunTokenizerBench(options);
  const std::string out = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << Message(status);
  EXPECT_NE(out.find("verified: tiktoken"), std::string::npos) << out;
  EXPECT_NE(out.find("verified: tokenizers"), std::string::npos) << out;
  EXPECT_NE(out.find("train"), std::string::npos) << out;
}

}  // namespace
}  // namespace cria::trainer
