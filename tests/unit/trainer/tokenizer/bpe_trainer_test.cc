#include "trainer/tokenizer/bpe_trainer.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/trainer/tokenizer/samples.h"

namespace cria::trainer {
namespace {

StatusOr<Tokenizer> Train(const std::vector<std::string>& texts, int32_t vocab_size,
                          int64_t pair_count_min = 2) {
  CRIA_ASSIGN_OR_RETURN(BpeTrainer trainer, BpeTrainer::Create({.vocab_size = vocab_size,
                                                                .pair_count_min = pair_count_min}));
  for (const std::string& text : texts) trainer.AddText(text);
  return trainer.Train();
}

// The textbook: count all pairs anew for each merge.
std::vector<std::string> NaiveMerges(const std::string& text, size_t num_merges) {
  const StatusOr<Pretokenizer> split = Pretokenizer::Create({kLlama3Pattern});
  TokenizerParts parts = SmallTokenizer().parts();
  std::map<std::string, int32_t> id_of;
  for (int32_t id = 0; id < 256; ++id) id_of[parts.tokens[id]] = id;
  std::vector<std::string> tokens(parts.tokens.begin(), parts.tokens.begin() + 256);
  std::vector<std::vector<int32_t>> words;
  split->ForEachPiece(text, [&](std::string_view piece) {
    words.emplace_back();
    for (const char c : piece) words.back().push_back(id_of[std::string(1, c)]);
  });
  std::vector<std::string> merges;
  while (merges.size() < num_merges) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    std::pair<int32_t, int32_t> best;
    int64_t best_count = 0;
    for (const auto& [pair, count] : counts) {  // ascending: the first of equals stays
      if (count > best_count) best = pair, best_count = count;
    }
    const std::string bytes = tokens[best.first] + tokens[best.second];
    merges.push_back(StrCat(tokens[best.first], "|", tokens[best.second]));
    const auto [place, is_new] = id_of.try_emplace(bytes, static_cast<int32_t>(tokens.size()));
    if (is_new) tokens.push_back(bytes);
    for (auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != best.first || word[i + 1] != best.second) continue;
        word[i] = place->second;
        word.erase(word.begin() + static_cast<ptrdiff_t>(i) + 1);
      }
    }
  }
  return merges;
}

std::vector<std::string> MergesOf(const Tokenizer& tokenizer) {
  std::vector<std::string> merges;
  for (const BpeMerge& merge : tokenizer.parts().merges) {
    merges.push_back(
        StrCat(tokenizer.TokenBytes(merge.left), "|", tokenizer.TokenBytes(merge.right)));
  }
  return merges;
}

TEST(BpeTrainerTest, LearnsTheObviousMerge) {
  const StatusOr<Tokenizer> tokenizer = Train({"abab abab abab"}, 261);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ(MergesOf(*tokenizer), (std::vector<std::string>{"a|b", "ab|ab", " |abab"}));
  EXPECT_EQ(tokenizer->bos_id(), 259);
  EXPECT_EQ(tokenizer->eos_id(), 260);
}

TEST(BpeTrainerTest, EqualsCountingAnewForEachMerge) {
  std::string text = TrainingText().substr(0, 6000) + "aaaaaaaaa aaaa aaaaaaa bbbbb abababab babab";
  const StatusOr<Tokenizer> tokenizer = Train({text}, 258 + 120, 1);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  const std::vector<std::string> merges = MergesOf(*tokenizer);
  EXPECT_EQ(merges, NaiveMerges(text, merges.size()));
}

TEST(BpeTrainerTest, TheOrderOfTheTextsDoesNotMatter) {
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < 200; ++i) texts.push_back(RandomText(12, i, 80));
  const StatusOr<Tokenizer> once = Train(texts, 700);
  ASSERT_TRUE(once.ok()) << Message(once.status());
  const StatusOr<Tokenizer> twice = Train(texts, 700);
  std::reverse(texts.begin(), texts.end());
  const StatusOr<Tokenizer> reversed = Train(texts, 700);
  EXPECT_EQ(once->ToJson(), twice->ToJson());
  EXPECT_EQ(once->ToJson(), reversed->ToJson());
  EXPECT_EQ(once->vocab_size(), 700);
}

TEST(BpeTrainerTest, AVocabularyLargerThanTheTextAllowsSaysHowLargeItMayBe) {
  const StatusOr<Tokenizer> tokenizer = Train({"abab abab abab"}, 4096);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(tokenizer.status()).find("4096"), std::string::npos);
  EXPECT_NE(Message(tokenizer.status()).find("at most 261"), std::string::npos)
      << Message(tokenizer.status());
  EXPECT_TRUE(Train({"abab abab abab"}, 261).ok());
}

TEST(BpeTrainerTest, EmptyAndTinyTextsAreErrors) {
  EXPECT_NE(Message(Train({}, 300).status()).find("no text"), std::string::npos);
  EXPECT_NE(Message(Train({"", ""}, 300).status()).find("no text"), std::string::npos);
  EXPECT_NE(Message(Train({"x"}, 300).status()).find("at most 258"), std::string::npos);
  EXPECT_TRUE(Train({"x"}, 258).ok());
  EXPECT_NE(Message(Train({"x"}, 257).status()).find("257"), std::string::npos);
  EXPECT_FALSE(Train({"x"}, -5).ok());
}

TEST(BpeTrainerTest, LearnsFromBytesThatAreNotText) {
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < 100; ++i) texts.push_back(RandomBytes(13, i, 2000));
  const StatusOr<Tokenizer> tokenizer = Train(texts, 600);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  std::vector<int32_t> ids;
  tokenizer->Encode(texts[0], &ids);
  EXPECT_EQ(tokenizer->Decode(ids), texts[0]);
}

// A pair's count is its overlapping occurrences: 2^20 - 1024 in pieces of 1,024.
TEST(BpeTrainerTest, LearnsFromAMegabyteOfOneCharacter) {
  const StatusOr<Tokenizer> tokenizer = Train({std::string(1 << 20, 'a')}, 258 + 10);
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ(tokenizer->TokenBytes(265), std::string(1024, 'a'));
}

TEST(BpeTrainerTest, TakesOtherSpecialTokensAndExpressions) {
  const StatusOr<BpeTrainer> made = BpeTrainer::Create(
      {.vocab_size = 260, .special_tokens = {"<a>", "<b>", "<c>"}, .split_expressions = {"x("}});
  EXPECT_FALSE(made.ok());
  StatusOr<BpeTrainer> trainer = BpeTrainer::Create(
      {.vocab_size = 260, .special_tokens = {"<a>", "<b>", "<c>"}, .split_expressions = {}});
  ASSERT_TRUE(trainer.ok());
  trainer->AddText("x yx yx y");
  const StatusOr<Tokenizer> tokenizer = trainer->Train();
  ASSERT_TRUE(tokenizer.ok()) << Message(tokenizer.status());
  EXPECT_EQ(tokenizer->AddedTokenId("<c>"), 259);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_TRUE(tokenizer->parts().template_prefix.empty());
  EXPECT_EQ(tokenizer->Split("a b c").size(), 1u);
}

}  // namespace
}  // namespace cria::trainer
