#include "trainer/eval/token_text.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/data/data_tokenizer.h"
#include "trainer/data/shard.h"

namespace cria::trainer {
namespace {

std::vector<int32_t> ReadAll(const TokenText& text, int64_t piece) {
  std::vector<int32_t> tokens(static_cast<size_t>(text.num_tokens()));
  for (int64_t i = 0; i < text.num_tokens(); i += piece) {
    const auto n = static_cast<size_t>(std::min(piece, text.num_tokens() - i));
    EXPECT_TRUE(text.Read(i, std::span(tokens).subspan(static_cast<size_t>(i), n)).ok());
  }
  return tokens;
}

std::string WriteShard(const std::string& dir, const std::string& prefix, TokenType type,
                       const std::vector<int32_t>& ids) {
  ShardWriter writer(dir, prefix, type, 1000);
  EXPECT_TRUE(writer.Append(ids).ok());
  return JoinPath(dir, (*writer.Finish())[0].file);
}

Tokenizer TinyTokenizer() {
  const auto manifest = ReadManifest(TinyData());
  return *LoadDataTokenizer(TinyData(), *manifest);
}

TEST(TokenTextTest, ShardsOfBothKindsReadAsOneText) {
  const std::string dir = FreshDir("shards");
  for (const TokenType type : {TokenType::kUint16, TokenType::kUint32}) {
    const std::string a = WriteShard(dir, "a", type, {1, 2, 3});
    const std::string b = WriteShard(dir, "b", type, {4});
    const std::string c = WriteShard(dir, "c", type, {5, 60000});
    const auto text = OpenTokenShards({a, b, c}, 7);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ((*text)->document_start(), 7);
    for (const int64_t piece : {1, 2, 5, 6}) {
      EXPECT_EQ(ReadAll(**text, piece), (std::vector<int32_t>{1, 2, 3, 4, 5, 60000})) << piece;
    }
  }
}

TEST(TokenTextTest, ShardsOfTwoKindsAreRefused) {
  const std::string dir = FreshDir("mixed");
  const std::string a = WriteShard(dir, "a", TokenType::kUint16, {1});
  const std::string b = WriteShard(dir, "b", TokenType::kUint32, {1});
  const Status status = OpenTokenShards({a, b}, std::nullopt).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find(b), std::string::npos) << status;
  EXPECT_EQ(OpenTokenShards({"/no/file"}, std::nullopt).status().code(), StatusCode::kNotFound);
}

// What `cria data` stored of the same documents.
TEST(TokenTextTest, TextIsEncodedAsPreparedDataIs) {
  const Tokenizer tokenizer = TinyTokenizer();
  const std::string path = JoinPath(FreshDir("text"), "t.txt");
  ASSERT_TRUE(WriteFileAtomic(path, "the llama.\n\nshe waits").ok());
  TextOptions options;
  options.source.inputs = {path};
  options.source.split_on = "\n\n";
  const auto text = EncodeDocuments(options, tokenizer, tokenizer.bos_id(), tokenizer.eos_id());
  ASSERT_TRUE(text.ok()) << text.status();
  std::vector<int32_t> want;
  for (const char* document : {"the llama.", "she waits"}) {
    want.push_back(*tokenizer.bos_id());
    tokenizer.Encode(document, &want);
    want.push_back(*tokenizer.eos_id());
  }
  EXPECT_EQ(ReadAll(**text, 3), want);
  EXPECT_EQ((*text)->document_start(), tokenizer.bos_id());
}

TEST(TokenTextTest, ReadsNoMoreTextThanTheTokensThatAreWanted) {
  const Tokenizer tokenizer = TinyTokenizer();
  const std::string path = JoinPath(FreshDir("long"), "t.txt");
  ASSERT_TRUE(WriteFileAtomic(path, TinyText(20000)).ok());
  TextOptions options;
  options.source.inputs = {path};
  options.source.part_bytes = 1000;
  options.tokens_max = 500;
  const auto text = EncodeDocuments(options, tokenizer, std::nullopt, std::nullopt);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_GE((*text)->num_tokens(), 500);
  EXPECT_LT((*text)->num_tokens(), 1500);
  EXPECT_EQ((*text)->document_start(), std::nullopt);
}

TEST(TokenTextTest, AFolderGivesItsManifest) {
  Manifest manifest;
  const auto text = OpenTokenFolder(TinyData(), "val", &manifest);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(manifest.vocab_size, 300);
  EXPECT_EQ((*text)->num_tokens(), manifest.val.num_tokens);
  EXPECT_EQ((*text)->document_start(), manifest.bos_id);
  EXPECT_FALSE(OpenTokenFolder(TinyData(), "test", nullptr).ok());
}

}  // namespace
}  // namespace cria::trainer
