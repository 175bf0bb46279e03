// Our ids and texts against those that Hugging Face's tokenizers gave (../shared/data/README.md).

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "trainer/check/tokenizer_check.h"

namespace cria::trainer {
namespace {

TEST(TokenizerGoldenTest, IdsAndTextsEqualThoseOfTokenizers) {
  const char* const data = std::getenv("CRIA_TEST_DATA");
  if (data == nullptr || !IsDir(JoinPath(data, "golden/tokenizer_1"))) {
    GTEST_SKIP() << "no golden/tokenizer_1 below CRIA_TEST_DATA";
  }
  EXPECT_EQ(RunTokenizerCheck(
                {JoinPath(data, "golden/tokenizer_1"), JoinPath(data, "golden/tokenizer_2")}),
            0);
}

TEST(TokenizerCheckTest, ReportsDifferencesAndMissingFolders) {
  EXPECT_EQ(RunTokenizerCheck({}), 2);
  const std::string dir = JoinPath(std::getenv("TEST_TMPDIR"), "folder");
  EXPECT_EQ(RunTokenizerCheck({dir}), 1);
  const char* const data = std::getenv("CRIA_TEST_DATA");
  if (data == nullptr || !IsDir(JoinPath(data, "golden/tokenizer_1"))) {
    GTEST_SKIP() << "no golden/tokenizer_1 below CRIA_TEST_DATA";
  }
  ASSERT_TRUE(MakeDirs(dir).ok());
  const std::string json = *ReadFile(JoinPath(data, "golden/tokenizer_1/tokenizer.json"));
  ASSERT_TRUE(WriteFileAtomic(JoinPath(dir, "tokenizer.json"), json).ok());
  const std::string cases = JoinPath(dir, "cases.jsonl");
  ASSERT_TRUE(WriteFileAtomic(cases, R"({"text": "a", "ids": [64], "decoded": "a"})").ok());
  EXPECT_EQ(RunTokenizerCheck({dir}), 0);
  ASSERT_TRUE(WriteFileAtomic(cases, R"({"text": "a", "ids": [65], "decoded": "a"})").ok());
  EXPECT_EQ(RunTokenizerCheck({dir}), 1);
  ASSERT_TRUE(WriteFileAtomic(cases, R"({"text": "a", "ids": ["x"], "decoded": "a"})").ok());
  EXPECT_EQ(RunTokenizerCheck({dir}), 1);
  ASSERT_TRUE(WriteFileAtomic(cases, "\n").ok());
  EXPECT_EQ(RunTokenizerCheck({dir}), 1);
}

}  // namespace
}  // namespace cria::trainer
