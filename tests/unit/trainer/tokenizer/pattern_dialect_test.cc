#include "trainer/tokenizer/pattern_dialect.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trainer/tokenizer/split_pattern.h"

namespace cria::trainer {
namespace {

std::vector<std::string> Matches(const std::string& expression, const std::string& text) {
  const StatusOr<SplitPattern> pattern = SplitPattern::Create(expression);
  EXPECT_TRUE(pattern.ok()) << pattern.status();
  std::vector<std::string> matches;
  if (!pattern.ok()) return matches;
  pattern->ForEachMatch(
      text, [&](size_t begin, size_t end) { matches.push_back(text.substr(begin, end - begin)); });
  return matches;
}

using Texts = std::vector<std::string>;

// Expected values: what Oniguruma gives, which PCRE2's words of the same letters do not.
TEST(PatternDialectTest, SaysWhatOnigurumaMeans) {
  EXPECT_EQ(Matches("\\h+", "xfe 9"), (Texts{"fe", "9"}));             // hexadecimal digits
  EXPECT_EQ(Matches("\\v", "a\nb\vc"), (Texts{"\v"}));                 // that character alone
  EXPECT_EQ(Matches("\\s+", "a\u180Eb \u0085c"), (Texts{" \u0085"}));  // not U+180E
  EXPECT_EQ(Matches("\\w+", "e\u0301a‿b"), (Texts{"e\u0301a‿b"}));     // marks, connectors
  EXPECT_EQ(Matches("\\d", "1²٣"), (Texts{"1", "٣"}));
  EXPECT_EQ(Matches("^b|a$", "a\nb"), (Texts{"a", "b"}));  // of lines
  EXPECT_EQ(Matches("(?m:a.)", "a\na"), (Texts{"a\n"}));   // "m" is others' "s"
  EXPECT_EQ(Matches("a.", "a\na"), (Texts{}));
  EXPECT_EQ(Matches("\\p{Han}+", "中、ー々"), (Texts{"中", "々"}));  // not by its extensions
  EXPECT_EQ(Matches("\\p{^L}", "a1"), (Texts{"1"}));
  EXPECT_EQ(Matches("\\u0041\\x{42}\\x43", "ABC"), (Texts{"ABC"}));
  EXPECT_EQ(Matches("(?i)AB", "aB"), (Texts{"aB"}));
  EXPECT_EQ(Matches("\\bé", "é éx e\u0301é"), (Texts{"é", "é"}));
}

TEST(PatternDialectTest, KnowsTheCharactersOfUnicode16) {
  EXPECT_EQ(Matches("\\p{Lu}\\p{Ll}", "\u1C89\u1C8A"), (Texts{"\u1C89\u1C8A"}));
  EXPECT_EQ(Matches("\\p{M}", "\u0897"), (Texts{"\u0897"}));
  EXPECT_EQ(Matches("[\\p{P}\\p{S}]+", "\u1B4E\u2427"), (Texts{"\u1B4E\u2427"}));
}

// A match of nothing counts, but not where a match has just ended.
TEST(PatternDialectTest, MatchesOfNothingAreFoundAsOnigurumasIteratorFindsThem) {
  EXPECT_EQ(Matches("x*", "axxb"), (Texts{"", "xx", ""}));
  EXPECT_EQ(Matches("(?=[A-Z])", "aBcD"), (Texts{"", ""}));
}

TEST(PatternDialectTest, RefusesByNameWhatTheTwoSayDifferently) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"[a[b]]", "\"[\""},    {"[[:alpha:]]", "\"[\""},
      {"[a&&b]", "&&"},       {"a{1,3}+", "\"+\""},
      {"a{,3}", "number"},    {"a{", "number"},
      {"a{2", "\"}\""},       {"(a)\\1", "\\1"},
      {"(?<n>a)", "(?<"},     {"a(?i)b", "option"},
      {"(?x: a)", "(?x"},     {"\\p{Elbasan}", "Elbasan"},
      {"\\p{C}", "C"},        {"\\pL", "braces"},
      {"[\\P{L}]", "\\P{L}"}, {"[\\W]", "\\W"},
      {"\\R", "\\R"},         {"\\K", "\\K"},
      {"\\C", "\\C"},         {"\\G", "\\G"},
      {"[\\b]", "\\b"},       {"\\x{110000000}", "\\x{"},
      {"\\u12", "number"},    {"\\", "end"},
      {"[]", "empty"},        {"(?i:\\p{Lu})", "case"},
      {"(*UTF)a", "(*"},      {"(?", "end"},
  };
  for (const auto& [expression, in_message] : kRefused) {
    const Status status = ToPcre2(expression).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << expression;
    EXPECT_NE(Message(status).find(in_message), std::string::npos) << status;
    EXPECT_NE(Message(status).find(expression), std::string::npos) << status;
  }
}

}  // namespace
}  // namespace cria::trainer
