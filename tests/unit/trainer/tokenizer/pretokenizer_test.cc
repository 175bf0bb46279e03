#include "trainer/tokenizer/pretokenizer.h"

#include <gtest/gtest.h>

#include "tests/unit/trainer/tokenizer/samples.h"

namespace cria::trainer {
namespace {

using Pieces = std::vector<std::string>;

Pretokenizer Make(Pretokenizer::Engine engine, std::vector<std::string> expressions) {
  StatusOr<Pretokenizer> made = Pretokenizer::Create(std::move(expressions), engine);
  EXPECT_TRUE(made.ok()) << Message(made.status());
  return std::move(made).value();
}

const Pretokenizer& ByHand() {
  static const Pretokenizer p = Make(Pretokenizer::Engine::kFastest, {kLlama3Pattern});
  return p;
}
const Pretokenizer& ByPcre2() {
  static const Pretokenizer p = Make(Pretokenizer::Engine::kPcre2, {kLlama3Pattern});
  return p;
}

Pieces Split(const Pretokenizer& pretokenizer, std::string_view text) {
  Pieces pieces;
  pretokenizer.ForEachPiece(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

std::string Join(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

TEST(PretokenizerTest, SplitsAsLlama3Does) {
  EXPECT_EQ(Split(ByHand(), "It's 12345 o'clock!\n\n  Go"),
            (Pieces{"It", "'s", " ", "123", "45", " o", "'clock", "!\n\n", " ", " Go"}));
  EXPECT_EQ(Split(ByHand(), "we'Ve\tdone  "), (Pieces{"we", "'Ve", "\tdone", "  "}));
  EXPECT_EQ(Split(ByHand(), " \n \n  x"), (Pieces{" \n \n", " ", " x"}));
  EXPECT_EQ(Split(ByHand(), "  (a)"), (Pieces{" ", " (", "a", ")"}));
  EXPECT_EQ(Split(ByHand(), ""), Pieces{});
}

// "'ſ" is "'s" when case does not count: U+017F folds to s.
TEST(PretokenizerTest, LongSIsAContraction) {
  EXPECT_EQ(Split(ByHand(), "it'ſx"), (Pieces{"it", "'ſ", "x"}));
  EXPECT_EQ(Split(ByPcre2(), "it'ſx"), (Pieces{"it", "'ſ", "x"}));
}

// Unicode 15 and 16, which PCRE2 10.42 does not know: U+1C89 is a letter, U+10D40 a number. And
// U+180E has not been white space since Unicode 6.3, whatever PCRE2's \s says.
TEST(PretokenizerTest, UsesTheTablesOfUnicode16) {
  for (const Pretokenizer* p : {&ByHand(), &ByPcre2()}) {
    EXPECT_EQ(Split(*p, "a\u1C89b"), (Pieces{"a\u1C89b"}));
    EXPECT_EQ(Split(*p, "1\U00010D40\U00010D411"), (Pieces{"1\U00010D40\U00010D41", "1"}));
    EXPECT_EQ(Split(*p, " \u180E "), (Pieces{" \u180E", " "}));
  }
}

TEST(PretokenizerTest, HandWrittenSplitEqualsPcre2OnRandomText) {
  for (uint64_t i = 0; i < 20000; ++i) {
    const std::string text = RandomText(1, i, 24);
    const Pieces want = Split(ByPcre2(), text);
    ASSERT_EQ(Split(ByHand(), text), want) << "RandomText(1, " << i << ", 24): " << text;
    ASSERT_EQ(Join(want), text);
  }
}

// Each pair of characters of the kinds that the expression tells apart, in each context.
TEST(PretokenizerTest, HandWrittenSplitEqualsPcre2OnAllShortCombinations) {
  const char* const kUnits[] = {"a", "é", "1", " ", "\t", "\n", "\r", "\u3000", "!", "'", "s", "…"};
  constexpr size_t kN = std::size(kUnits);
  for (size_t i = 0; i < kN * kN * kN * kN; ++i) {
    std::string text;
    for (size_t rest = i, k = 0; k < 4; rest /= kN, ++k) text += kUnits[rest % kN];
    ASSERT_EQ(Split(ByHand(), text), Split(ByPcre2(), text)) << "text " << text;
  }
}

TEST(PretokenizerTest, LosesNothingOfAnyBytes) {
  for (uint64_t i = 0; i < 2000; ++i) {
    const std::string bytes = RandomBytes(2, i, 60);
    ASSERT_EQ(Join(Split(ByHand(), bytes)), bytes) << i;
    ASSERT_EQ(Split(ByHand(), bytes), Split(ByPcre2(), bytes)) << i;
  }
}

TEST(PretokenizerTest, ARunOfInvalidBytesIsOnePiece) {
  EXPECT_EQ(Split(ByHand(), "ab\xFF\xFE c"), (Pieces{"ab", "\xFF\xFE", " c"}));
  // The valid run before ends there, as at the end of a text: both spaces stay together.
  EXPECT_EQ(Split(ByHand(), "ab  \x80"), (Pieces{"ab", "  ", "\x80"}));
}

// A megabyte of one character. Quadratic look-ahead would take hours here, and PCRE2's limits
// would end the matches early: the pieces are known in closed form.
TEST(PretokenizerTest, SplitsAMegabyteOfOneCharacter) {
  constexpr size_t kSize = 1 << 20;
  for (const Pretokenizer* p : {&ByHand(), &ByPcre2()}) {
    for (const char c : {'a', ' ', '\n', '!', '\t'}) {
      EXPECT_EQ(Split(*p, std::string(kSize, c)).size(), 1u) << static_cast<int>(c);
    }
    EXPECT_EQ(Split(*p, std::string(kSize, '7')).size(), (kSize + 2) / 3);
    EXPECT_EQ(Split(*p, std::string(kSize, ' ') + "x"),
              (Pieces{std::string(kSize - 1, ' '), " x"}));
    EXPECT_EQ(Split(*p, std::string(kSize, ' ') + "\nx"),
              (Pieces{std::string(kSize, ' ') + "\n", "x"}));
    EXPECT_EQ(Split(*p, std::string(kSize, '\x80')).size(), 1u);
    std::string apostrophes(kSize, '\'');
    EXPECT_EQ(Split(*p, apostrophes + "s").size(), 1u + 1u);
  }
}

TEST(PretokenizerTest, SeveralExpressionsRefineEachOther) {
  const Pretokenizer p = Make(Pretokenizer::Engine::kFastest, {"\\p{N}", kGpt2Pattern});
  EXPECT_EQ(Split(p, "ab 12 cd"), (Pieces{"ab", " ", "1", "2", " cd"}));
  EXPECT_FALSE(p.SplitsAtLineStarts());
  EXPECT_TRUE(ByHand().SplitsAtLineStarts());
}

TEST(PretokenizerTest, AnExpressionThatDoesNotCompileIsNamed) {
  const StatusOr<Pretokenizer> p = Pretokenizer::Create({"a(b"});
  ASSERT_FALSE(p.ok());
  EXPECT_EQ(p.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(p.status()).find("a(b"), std::string::npos);
}

// Expressions from hostile files: empty matches, matches that go backwards, exponential search.
TEST(PretokenizerTest, StrangeExpressionsEndAndLoseNothing) {
  for (const char* expression : {"", "x*", "(?=a)", "(?<=a)", "^", "$", "(a+)+$"}) {
    const Pretokenizer p = Make(Pretokenizer::Engine::kFastest, {expression});
    EXPECT_EQ(Join(Split(p, "aaaaaaaab aab")), "aaaaaaaab aab") << expression;
  }
  for (const char* refused : {"\\C", "a\\Kb"}) {  // would cut characters, would go backwards
    EXPECT_EQ(Pretokenizer::Create({refused}).status().code(), StatusCode::kUnimplemented);
  }
}

}  // namespace
}  // namespace cria::trainer
