#include "trainer/generate/text_stream.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/unit/trainer/generate/byte_tokenizer.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

// The text and whether it was stopped, with `parts` pushed one after another.
struct Matched {
  std::string text;
  bool stopped = false;
  bool operator==(const Matched&) const = default;
};
Matched Match(const std::vector<std::string>& stop, const std::vector<std::string>& parts) {
  StopMatcher matcher(stop);
  Matched matched;
  for (const std::string& part : parts) matched.text += matcher.Push(part);
  matched.text += matcher.Finish();
  matched.stopped = matcher.stopped();
  return matched;
}

TEST(StopMatcherTest, CutsBeforeAStopStringThatSpansParts) {
  for (const std::vector<std::string>& parts : {std::vector<std::string>{"one END two"},
                                                {"one E", "ND two"},
                                                {"one ", "E", "N", "D", " two"},
                                                {"o", "ne EN", "D"}}) {
    EXPECT_EQ(Match({"END"}, parts), (Matched{"one ", true}));
  }
}

TEST(StopMatcherTest, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopMatcher matcher({"\n\n", "###"});
  EXPECT_EQ(matcher.Push("a"), "a");
  EXPECT_EQ(matcher.Push("b\n"), "b");
  EXPECT_EQ(matcher.Push("c"), "\nc");
  EXPECT_EQ(matcher.Push("##"), "");
  EXPECT_EQ(matcher.Push("x"), "##x");
  EXPECT_EQ(matcher.Push("\n"), "");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.Push("\nmore"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.Push("more"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, GivesWhatItHeldWhenTheTextEnds) {
  EXPECT_EQ(Match({"END"}, {"the EN"}), (Matched{"the EN", false}));
  EXPECT_EQ(Match({}, {"a", "b"}), (Matched{"ab", false}));
}

// A prefix of a stop string that overlaps itself: "aab" in "aaab".
TEST(StopMatcherTest, FindsAStopStringAfterAFalseStart) {
  EXPECT_EQ(Match({"aab"}, {"a", "a", "a", "b"}), (Matched{"a", true}));
  EXPECT_EQ(Match({"abab"}, {"ababab"}), (Matched{"", true}));
  EXPECT_EQ(Match({"abac"}, {"ab", "ab", "ac"}), (Matched{"ab", true}));
}

TEST(StopMatcherTest, TheOneThatEndsFirstStopsAndOfThoseTheLongest) {
  for (const std::vector<std::string>& parts :
       {std::vector<std::string>{"xabcd"}, {"x", "a", "bc", "d"}}) {
    EXPECT_EQ(Match({"abcd", "bc"}, parts), (Matched{"xa", true}));
    EXPECT_EQ(Match({"bc", "abc"}, parts), (Matched{"x", true}));
  }
}

TEST(StopMatcherTest, DoesNotDependOnHowTheTextIsCut) {
  const Rng rng(5, StreamOf("stop matcher"));
  uint64_t draw = 0;
  const auto random_text = [&](uint64_t length) {
    std::string text;
    for (uint64_t i = 0; i < length; ++i) text += "abc"[rng.Below(draw++, 3)];
    return text;
  };
  int num_stopped = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> stop;
    for (uint64_t i = 0; i < 1 + rng.Below(draw, 3); ++i) {
      stop.push_back(random_text(1 + rng.Below(draw++, 5)));
    }
    const std::string text = random_text(rng.Below(draw++, 30));
    std::vector<std::string> bytes, parts;
    for (const char c : text) bytes.push_back(std::string(1, c));
    for (size_t at = 0; at < text.size();) {
      parts.push_back(text.substr(at, 1 + rng.Below(draw++, 6)));
      at += parts.back().size();
    }
    // Slowly: byte by byte, the first place where any stop string ends.
    Matched expected = {text, false};
    for (size_t end = 0; end <= text.size() && !expected.stopped; ++end) {
      size_t cut = std::string::npos;
      for (const std::string& s : stop) {
        if (text.substr(0, end).ends_with(s)) cut = std::min(cut, end - s.size());
      }
      if (cut != std::string::npos) expected = {text.substr(0, cut), true};
    }
    EXPECT_EQ(Match(stop, bytes), expected);
    EXPECT_EQ(Match(stop, parts), expected);
    EXPECT_EQ(Match(stop, {text}), expected);
    num_stopped += expected.stopped;
  }
  EXPECT_GT(num_stopped, 100);
  EXPECT_LT(num_stopped, 480);
}

// As Python's bytes.decode("utf-8", "replace") gives them.
TEST(ReplaceInvalidUtf8Test, OneMarkForEachMaximalBeginningOfACharacter) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("plain é 中 🦙"), "plain é 中 🦙");
  EXPECT_EQ(ReplaceInvalidUtf8("a\xFF\xFE"
                               "b"),
            "a" + mark + mark + "b");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE4\xB8"), mark);
  EXPECT_EQ(ReplaceInvalidUtf8("\xE4\xB8"
                               "a"),
            mark + "a");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\xA6\xE4"), mark + mark);
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF"), mark + mark);             // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), mark + mark + mark);  // a surrogate
  EXPECT_EQ(ReplaceInvalidUtf8("\x80"), mark);
  EXPECT_EQ(ReplaceInvalidUtf8(""), "");
}

class TextStreamTest : public testing::Test {
 protected:
  std::vector<std::string> Parts(const std::string& bytes, const TextStreamOptions& options) {
    TextStream stream(&ByteTokenizer(), options);
    std::vector<std::string> parts;
    for (const char c : bytes) parts.push_back(stream.Push(static_cast<uint8_t>(c)));
    parts.push_back(stream.Finish());
    return parts;
  }
};

TEST_F(TextStreamTest, GivesWholeCharactersOnly) {
  // A token a byte: the hardest case.
  const std::string text = "aé中🦙 ok";
  std::string joined;
  for (const std::string& part : Parts(text, {})) {
    EXPECT_EQ(ValidUtf8Prefix(part), part.size());
    joined += part;
  }
  EXPECT_EQ(joined, text);
}

TEST_F(TextStreamTest, AStopStringOfManyTokensAndBytesIsFound) {
  std::string joined;
  for (const std::string& part : Parts("before 🦙 after", {.stop = {"🦙"}})) joined += part;
  EXPECT_EQ(joined, "before ");
}

TEST_F(TextStreamTest, AnyBytesAreValidText) {
  const Rng rng(6, StreamOf("text stream"));
  for (uint64_t round = 0; round < 200; ++round) {
    std::string bytes;
    for (uint64_t i = 0; i < 20; ++i) {
      bytes += static_cast<char>(rng.Below(round * 100 + i, 3) == 0
                                     ? rng.Below(round * 100 + 50 + i, 128)
                                     : 0x80 + rng.Below(round * 100 + 50 + i, 128));
    }
    std::string joined;
    for (const std::string& part : Parts(bytes, {.stop = {"\x7F"}})) {
      EXPECT_EQ(ValidUtf8Prefix(part), part.size());
      joined += part;
    }
    const std::string whole = ReplaceInvalidUtf8(bytes);
    EXPECT_EQ(joined, whole.substr(0, whole.find('\x7F')));
  }
}

TEST_F(TextStreamTest, ShowsSpecialTokensOnlyWhenAsked) {
  const int32_t end = *ByteTokenizer().eos_id();
  TextStream hidden(&ByteTokenizer(), {});
  EXPECT_EQ(hidden.Push('a') + hidden.Push(end) + hidden.Push('b') + hidden.Finish(), "ab");
  TextStream shown(&ByteTokenizer(), {.stop = {}, .skip_special = false});
  EXPECT_EQ(shown.Push('a') + shown.Push(end) + shown.Push('b') + shown.Finish(),
            "a<|end_of_text|>b");
}

}  // namespace
}  // namespace cria::trainer
