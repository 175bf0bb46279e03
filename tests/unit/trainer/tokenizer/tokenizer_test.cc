#include "trainer/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/file.h"
#include "base/parallel.h"
#include "tests/unit/trainer/tokenizer/samples.h"
#include "trainer/tokenizer/parallel_encode.h"
#include "trainer/tokenizer/streaming_decoder.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

std::vector<int32_t> Encode(const Tokenizer& tokenizer, std::string_view text,
                            const EncodeOptions& options = {}) {
  std::vector<int32_t> ids;
  tokenizer.Encode(text, options, &ids);
  return ids;
}

TEST(TokenizerTest, AnyBytesRoundTrip) {
  const Tokenizer& tokenizer = SmallTokenizer();
  for (uint64_t i = 0; i < 3000; ++i) {
    const std::string bytes = RandomBytes(3, i, 200);
    ASSERT_EQ(tokenizer.Decode(Encode(tokenizer, bytes)), bytes) << "RandomBytes(3, " << i << ")";
    const std::string text = RandomText(4, i, 50);
    ASSERT_EQ(tokenizer.Decode(Encode(tokenizer, text)), text) << "RandomText(4, " << i << ")";
    ASSERT_EQ(tokenizer.Decode(Encode(tokenizer, text, {.parse_special = true})), text);
  }
}

TEST(TokenizerTest, EncodeAppends) {
  std::vector<int32_t> ids = {42};
  SmallTokenizer().Encode("the", &ids);
  ASSERT_GE(ids.size(), 2u);
  EXPECT_EQ(ids[0], 42);
}

TEST(TokenizerTest, SpecialTokensInTextAreTextUnlessParsed) {
  const Tokenizer& tokenizer = SmallTokenizer();
  const int32_t bos = *tokenizer.bos_id();
  const int32_t eos = *tokenizer.eos_id();
  EXPECT_EQ(bos, 498);
  EXPECT_EQ(eos, 499);
  EXPECT_EQ(tokenizer.vocab_size(), 500);
  const std::string text = "<|begin_of_text|>the<|end_of_text|>";
  for (const int32_t id : Encode(tokenizer, text)) EXPECT_FALSE(tokenizer.IsSpecial(id));
  const std::vector<int32_t> parsed = Encode(tokenizer, text, {.parse_special = true});
  EXPECT_EQ(parsed.front(), bos);
  EXPECT_EQ(parsed.back(), eos);
  EXPECT_EQ(tokenizer.Decode(parsed), text);
  EXPECT_EQ(tokenizer.Decode(parsed, /*skip_special=*/true), "the");
  EXPECT_EQ(tokenizer.AddedTokenId("<|nothing|>"), std::nullopt);
}

// A piece that reads like an added token must not become it through the whole-piece rule.
TEST(TokenizerTest, AWholePieceNeverBecomesAnUnparsedSpecialToken) {
  TokenizerParts parts = SmallTokenizer().parts();
  parts.added.push_back({.id = 500, .content = "zebra"});
  const StatusOr<Tokenizer> tokenizer = Tokenizer::FromParts(parts, "test");
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_GT(Encode(*tokenizer, "zebra").size(), 1u);
  EXPECT_EQ(Encode(*tokenizer, "zebra", {.parse_special = true}), (std::vector<int32_t>{500}));
}

TEST(TokenizerTest, TheLongestOfSeveralAddedTokensWins) {
  TokenizerParts parts = SmallTokenizer().parts();
  parts.added.push_back({.id = 500, .content = "<x>"});
  parts.added.push_back({.id = 501, .content = "<x>>"});
  parts.added.push_back({.id = 502, .content = "plain", .special = false});
  const StatusOr<Tokenizer> tokenizer = Tokenizer::FromParts(parts, "test");
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ(Encode(*tokenizer, "<x>><x>", {.parse_special = true}),
            (std::vector<int32_t>{501, 500}));
  EXPECT_EQ(Encode(*tokenizer, "plain"), (std::vector<int32_t>{502}));  // not special: always
}

TEST(TokenizerTest, TheTemplatePutsBeginOfTextFirst) {
  const Tokenizer& tokenizer = SmallTokenizer();
  std::vector<int32_t> want = {*tokenizer.bos_id()};
  tokenizer.Encode("the house", &want);
  EXPECT_EQ(Encode(tokenizer, "the house", {.add_template = true}), want);
}

TEST(TokenizerTest, DecodeIgnoresIdsThatDoNotExist) {
  const std::vector<int32_t> ids = {-1, 500, 1 << 30, SmallTokenizer().parts().merges[0].result};
  EXPECT_EQ(SmallTokenizer().Decode(ids), SmallTokenizer().TokenBytes(ids.back()));
}

TEST(TokenizerTest, SaveAndLoadGiveTheSameTokenizerAndTheSameBytes) {
  const std::string path = JoinPath(std::getenv("TEST_TMPDIR"), "tokenizer.json");
  ASSERT_TRUE(SmallTokenizer().Save(path).ok());
  const StatusOr<Tokenizer> loaded = Tokenizer::Load(path);
  ASSERT_TRUE(loaded.ok()) << Message(loaded.status());
  EXPECT_EQ(loaded->parts(), SmallTokenizer().parts());
  EXPECT_EQ(loaded->ToJson(), SmallTokenizer().ToJson());
  EXPECT_EQ(loaded->Fingerprint(), SmallTokenizer().Fingerprint());
  EXPECT_EQ(*ReadFile(path), loaded->ToJson());
}

TEST(TokenizerTest, SavingToAMissingFolderIsAnErrorThatNamesIt) {
  const Status status = SmallTokenizer().Save("/nonexistent/folder/tokenizer.json");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(Message(status).find("/nonexistent/folder"), std::string::npos);
}

TEST(StreamingDecoderTest, GivesWholeCharactersAndLosesNothing) {
  const Tokenizer& tokenizer = SmallTokenizer();
  for (uint64_t i = 0; i < 500; ++i) {
    const std::string text = RandomText(5, i, 40);
    StreamingDecoder decoder(&tokenizer);
    std::string all;
    for (const int32_t id : Encode(tokenizer, text)) {
      const std::string part = decoder.Push(id);
      ASSERT_EQ(ValidUtf8Prefix(part), part.size()) << i;
      all += part;
    }
    EXPECT_EQ(decoder.Finish(), "");
    ASSERT_EQ(all, text) << i;
  }
}

TEST(StreamingDecoderTest, HoldsBackAtMostThreeBytesOfAnyBytes) {
  const Tokenizer& tokenizer = SmallTokenizer();
  for (uint64_t i = 0; i < 500; ++i) {
    const std::string bytes = RandomBytes(6, i, 100);
    StreamingDecoder decoder(&tokenizer);
    std::string got, pushed;
    for (const int32_t id : Encode(tokenizer, bytes)) {
      pushed += tokenizer.TokenBytes(id);
      got += decoder.Push(id);
      ASSERT_LE(pushed.size() - got.size(), 3u);
    }
    ASSERT_EQ(got + decoder.Finish(), bytes) << i;
  }
}

TEST(StreamingDecoderTest, GivesAnIncompleteCharacterOnlyAtTheEnd) {
  const Tokenizer& tokenizer = SmallTokenizer();
  StreamingDecoder decoder(&tokenizer);
  std::vector<int32_t> ids = Encode(tokenizer, "\xF0\x9F");
  for (const int32_t id : ids) EXPECT_EQ(decoder.Push(id), "");
  EXPECT_EQ(decoder.Finish(), "\xF0\x9F");
  EXPECT_EQ(decoder.Finish(), "");
}

// What is given out in steps is what one replacement of the whole text gives.
TEST(StreamingDecoderTest, ReplacesInvalidBytesAsTheWholeTextWould) {
  const Tokenizer& tokenizer = SmallTokenizer();
  for (uint64_t i = 0; i < 500; ++i) {
    const std::string bytes = RandomBytes(8, i, 60) + RandomText(8, i, 10) + "\xE4\xB8";
    StreamingDecoder decoder(&tokenizer, /*skip_special=*/false, /*replace_invalid=*/true);
    std::string got;
    for (const int32_t id : Encode(tokenizer, bytes)) {
      const std::string part = decoder.Push(id);
      ASSERT_EQ(ValidUtf8Prefix(part), part.size()) << i;
      got += part;
    }
    ASSERT_EQ(got + decoder.Finish(), ReplaceInvalidUtf8(bytes)) << i;
  }
}

TEST(StreamingDecoderTest, LeavesOutSpecialTokensOnRequest) {
  StreamingDecoder decoder(&SmallTokenizer(), /*skip_special=*/true);
  EXPECT_EQ(decoder.Push(*SmallTokenizer().eos_id()), "");
}

TEST(ParallelEncodeTest, AnyNumberOfThreadsGivesTheSameIds) {
  const Tokenizer& tokenizer = SmallTokenizer();
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < 300; ++i) texts.push_back(RandomText(7, i, 60));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  for (const int num_threads : {1, 2, 5}) {
    SetNumThreads(num_threads);
    const std::vector<std::vector<int32_t>> ids = EncodeTexts(tokenizer, views);
    ASSERT_EQ(ids.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(ids[i], Encode(tokenizer, texts[i])) << i;
  }
}

// Small blocks, so that cuts come at every kind of line end.
TEST(ParallelEncodeTest, CuttingALongTextChangesNoId) {
  const Tokenizer& tokenizer = SmallTokenizer();
  for (uint64_t i = 0; i < 300; ++i) {
    std::string text = RandomText(8, i, 100);
    for (uint64_t k = 0; k < 5; ++k) text += StrCat("\n", RandomText(9, 5 * i + k, 5));
    for (const EncodeOptions& options :
         {EncodeOptions{}, EncodeOptions{.parse_special = true, .add_template = true}}) {
      ASSERT_EQ(EncodeLongText(tokenizer, text, options, 16), Encode(tokenizer, text, options))
          << i;
    }
  }
  EXPECT_TRUE(EncodeLongText(tokenizer, "").empty());
}

}  // namespace
}  // namespace cria::trainer
