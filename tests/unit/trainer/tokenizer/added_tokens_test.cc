#include "trainer/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cria::trainer {
namespace {

// "text|[3:<x>]|text": tokens by id and what was matched.
std::string Parts(const AddedTokenMatcher& matcher, std::string_view text, bool special = true) {
  std::string out;
  matcher.ForEachPart(text, special, [&](std::string_view part, int32_t id) {
    if (!out.empty()) out += "|";
    out += id < 0 ? std::string(part) : StrCat("[", id, ":", part, "]");
  });
  return out;
}

AddedTokenMatcher Make(std::vector<AddedToken> tokens) {
  std::vector<AddedTokenMatcher::Pattern> patterns;
  for (AddedToken& token : tokens) {
    std::string text = token.content;
    patterns.push_back({std::move(text), std::move(token)});
  }
  return AddedTokenMatcher(std::move(patterns));
}

TEST(AddedTokensTest, TakesTheLeftmostAndOfThoseTheLongest) {
  const AddedTokenMatcher matcher = Make(
      {{.id = 1, .content = "ab"}, {.id = 2, .content = "abcd"}, {.id = 3, .content = "bcdef"}});
  EXPECT_EQ(Parts(matcher, "xabcdefab"), "x|[2:abcd]|ef|[1:ab]");
  EXPECT_EQ(Parts(matcher, "xabcbcdef"), "x|[1:ab]|c|[3:bcdef]");
  EXPECT_EQ(Parts(matcher, "abc"), "[1:ab]|c");
  EXPECT_EQ(Parts(matcher, ""), "");
  EXPECT_EQ(Parts(matcher, "x"), "x");
}

// What a special token covers is text where they are not parsed, also for the tokens within.
TEST(AddedTokensTest, SkipsSpecialTokensWhole) {
  const AddedTokenMatcher matcher =
      Make({{.id = 1, .content = "<ab>"}, {.id = 2, .content = "ab", .special = false}});
  EXPECT_EQ(Parts(matcher, "ab<ab>ab"), "[2:ab]|[1:<ab>]|[2:ab]");
  EXPECT_EQ(Parts(matcher, "ab<ab>ab", false), "[2:ab]|<ab>|[2:ab]");
}

TEST(AddedTokensTest, StripsWhiteSpaceOnItsSides) {
  const AddedTokenMatcher matcher =
      Make({{.id = 1, .content = "<l>", .lstrip = true},
            {.id = 2, .content = "<r>", .rstrip = true},
            {.id = 3, .content = "<b>", .lstrip = true, .rstrip = true}});
  EXPECT_EQ(Parts(matcher, "a \u3000<l> b"), "a|[1:<l>]| b");
  EXPECT_EQ(Parts(matcher, "a <r>\n\t b"), "a |[2:<r>]|b");
  EXPECT_EQ(Parts(matcher, " <b> <b> "), "[3:<b>]|[3:<b>]");
  EXPECT_EQ(Parts(matcher, "<r>   <l>"), "[2:<r>]|[1:<l>]");
}

TEST(AddedTokensTest, SingleWordsStandAlone) {
  const AddedTokenMatcher matcher = Make({{.id = 1, .content = "in", .single_word = true}});
  EXPECT_EQ(Parts(matcher, "in inn (in) x_in in\u0301 in-in éin"),
            "[1:in]| inn (|[1:in]|) x_in in\u0301 |[1:in]|-|[1:in]| éin");
}

// White space made of added tokens is walked over once, not once for each.
TEST(AddedTokensTest, AMegabyteOfSpacesTakesLinearTime) {
  const AddedTokenMatcher matcher =
      Make({{.id = 1, .content = " ", .lstrip = true, .rstrip = true}});
  size_t count = 0;
  matcher.ForEachPart(std::string(1 << 20, ' '), true,
                      [&](std::string_view, int32_t id) { count += id == 1; });
  EXPECT_EQ(count, size_t{1} << 20);
}

}  // namespace
}  // namespace cria::trainer
