#include "trainer/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <vector>

#include "trainer/tokenizer/byte_alphabet.h"

namespace cria::trainer {
namespace {

TEST(Utf8Test, EveryScalarValueIsReadBackAndNothingElseIsValid) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    AppendUtf8(c, &text);
    const int length = Utf8Length(text.data(), text.data() + text.size());
    if (c >= 0xD800 && c < 0xE000) {
      ASSERT_EQ(length, 0) << "surrogate " << c;
      continue;
    }
    ASSERT_EQ(length, static_cast<int>(text.size())) << c;
    ASSERT_EQ(ValidUtf8Length(static_cast<uint8_t>(text[0])), length) << c;
    ASSERT_EQ(DecodeUtf8(text.data(), length), c);
    for (size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(Utf8Length(text.data(), text.data() + cut), 0) << c << " cut to " << cut;
    }
  }
}

TEST(Utf8Test, RefusesOverlongAndTooLargeForms) {
  for (const std::string_view bytes : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
                                       "\xF4\x90\x80\x80", "\x80", "\xFF", "\xED\xA0\x80"}) {
    EXPECT_EQ(Utf8Length(bytes.data(), bytes.data() + bytes.size()), 0);
    EXPECT_EQ(ValidUtf8Prefix(bytes), 0u);
  }
}

TEST(Utf8Test, ValidPrefixEndsAtTheFirstBadByte) {
  std::string text = "sixteen ASCII byt, é, 中";
  const size_t good = text.size();
  EXPECT_EQ(ValidUtf8Prefix(text), good);
  text += "\xE4\xB8 tail";
  EXPECT_EQ(ValidUtf8Prefix(text), good);
}

TEST(Utf8Test, HoldsBackExactlyWhatMoreBytesCouldComplete) {
  // Any one, two or three bytes: held back if and only if some continuation is valid.
  const auto can_complete = [](std::string bytes) {
    std::vector<std::string> open = {std::move(bytes)};
    for (int i = 0; i < 3; ++i) {
      std::vector<std::string> longer;
      for (const std::string& b : open) {
        for (const int next : {0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF}) {
          longer.push_back(b + static_cast<char>(next));
          const std::string& text = longer.back();
          if (Utf8Length(text.data(), text.data() + text.size()) == static_cast<int>(text.size())) {
            return true;
          }
        }
      }
      open = std::move(longer);
    }
    return false;
  };
  for (int lead = 0; lead < 256; ++lead) {
    std::vector<std::string> suffixes = {{static_cast<char>(lead)}};
    for (const int second : {0x00, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC3}) {
      suffixes.push_back({static_cast<char>(lead), static_cast<char>(second)});
      suffixes.push_back(suffixes.back() + "\x80");
    }
    for (const std::string& bytes : suffixes) {
      size_t want = 0;
      for (size_t held = 1; held <= bytes.size(); ++held) {
        const std::string tail = bytes.substr(bytes.size() - held);
        const auto first = static_cast<uint8_t>(tail[0]);
        if (first >= 0xC0 && can_complete(tail)) want = held;
      }
      EXPECT_EQ(IncompleteUtf8Suffix("text" + bytes), want) << ToAlphabet(bytes);
    }
  }
}

// The cases of Unicode's table 3-8, and what Rust's from_utf8_lossy gives.
TEST(Utf8Test, ReplacesEachMaximalBeginningByOneCharacter) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(ReplaceInvalidUtf8(""), "");
  EXPECT_EQ(ReplaceInvalidUtf8("aé中😀"), "aé中😀");
  EXPECT_EQ(ReplaceInvalidUtf8("a\x80z"), "a" + r + "z");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x9F\x98z"), r + "z");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE4\xB8\xE4\xB8\xAD"), r + "中");
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Utf8Test, RunsAreMaximalAndLoseNothing) {
  const std::string text = "ab\xFF\xFE\xE4é\x80";
  std::vector<std::pair<std::string, bool>> runs;
  ForEachUtf8Run(text, [&](std::string_view run, bool is_valid) {
    runs.emplace_back(std::string(run), is_valid);
  });
  const std::vector<std::pair<std::string, bool>> want = {
      {"ab", true}, {"\xFF\xFE\xE4", false}, {"é", true}, {"\x80", false}};
  EXPECT_EQ(runs, want);
}

TEST(ByteAlphabetTest, WritesEachByteAsOnePrintableCharacter) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  const std::string text = ToAlphabet(all);
  EXPECT_EQ(ValidUtf8Prefix(text), text.size());
  std::string back;
  EXPECT_TRUE(FromAlphabet(text, &back));
  EXPECT_EQ(back, all);
  EXPECT_EQ(ToAlphabet(" the\n"), "ĠtheĊ");
  EXPECT_EQ(ByteOfRank()[0], '!');
  EXPECT_EQ(ByteOfRank()[188], 0);  // the first byte that is not printable
}

TEST(ByteAlphabetTest, RefusesOtherCharacters) {
  std::string bytes;
  EXPECT_FALSE(FromAlphabet("a b", &bytes));
  EXPECT_FALSE(FromAlphabet("中", &bytes));
  EXPECT_FALSE(FromAlphabet("\xFF", &bytes));
}

}  // namespace
}  // namespace cria::trainer
