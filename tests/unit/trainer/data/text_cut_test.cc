// trainer/data/text_cut.h: a cut at a newline or a space leaves the tokens as they are.

#include "trainer/data/text_cut.h"

#include <string>
#include <vector>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "trainer/tokenizer/bpe_trainer.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {
namespace {

TEST(TextCutTest, PrefersNewlinesThenSpacesThenCharacters) {
  EXPECT_EQ(FindCut("one two\nthree four", 16), 8u);
  EXPECT_EQ(FindCut("one two three", 10), 7u);
  EXPECT_EQ(FindCut("one two", 3), 3u);
  EXPECT_EQ(FindCut("onetwo", 3), 3u);
  EXPECT_EQ(FindCut("\xC3\xA9\xC3\xA9\xC3\xA9", 3), 2u);          // é|é é
  EXPECT_EQ(FindCut("\xF0\x9F\x98\x80\xF0\x9F\x98\x80", 7), 4u);  // one emoji
  EXPECT_EQ(FindCut("\x80\x80\x80\x80\x80\x80", 5), 5u);          // no UTF-8 at all
  EXPECT_EQ(FindCut("ab", 1), 1u);
}

TEST(TextCutTest, KeepsARunOfNewlinesTogether) {
  EXPECT_EQ(FindCut("a\n\n\n\nb c", 3), 3u);  // inside the run: no exact place
  EXPECT_EQ(FindCut("a\n\n\n\nb c", 6), 5u);  // behind it
  // A newline before an ideographic space is inside a run of white space.
  EXPECT_EQ(FindCut("ab\n\xE3\x80\x80 x", 6), 6u);
}

TEST(TextCutTest, CutsDoNotChangeTheTokens) {
  const std::vector<std::string> pieces = {
      "In ",          "the",  " beginning", "\n",    "\n\n", "  ",   " 123", "'s", ". ",
      "\xE5\xA5\xBD", "é",    "\r\n",       "don't", "\t",   "!!\n", "x1y2", " ",  "\xC2\xA0",
      "\xE3\x80\x80", "\xFF", "word"};
  const Rng rng(7, StreamOf("text cut"));
  std::string text;
  for (uint64_t i = 0; i < 6000; ++i) text += pieces[rng.Below(i, pieces.size())];
  BpeTrainer trainer = BpeTrainer::Create({.vocab_size = 400}).value();
  trainer.AddText(text);
  const Tokenizer tokenizer = trainer.Train().value();

  int num_exact = 0;
  for (uint64_t i = 0; i < 300; ++i) {
    const size_t begin = rng.Below(10000 + i, text.size() - 600);
    const std::string_view part = std::string_view(text).substr(begin, 500);
    const size_t cut = FindCut(part, 400);
    // Only the two exact kinds are promised to keep the tokens.
    const bool is_newline = part[cut - 1] == '\n' || part[cut - 1] == '\r';
    const bool is_space = part[cut] == ' ' && std::isalnum(static_cast<uint8_t>(part[cut - 1]));
    if (!is_newline && !is_space) continue;
    ++num_exact;
    std::vector<int32_t> whole;
    std::vector<int32_t> halves;
    tokenizer.Encode(part, &whole);
    tokenizer.Encode(part.substr(0, cut), &halves);
    tokenizer.Encode(part.substr(cut), &halves);
    ASSERT_EQ(whole, halves) << "begin " << begin << " cut " << cut;
  }
  EXPECT_GT(num_exact, 250);
}

}  // namespace
}  // namespace cria::trainer
