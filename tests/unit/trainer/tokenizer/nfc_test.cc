#include "trainer/tokenizer/nfc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/rng.h"
#include "tests/unit/trainer/tokenizer/samples.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

TEST(NfcTest, ComposesAndTakesApart) {
  const struct {
    const char* text;
    const char* nfc;
    const char* nfd;
  } kCases[] = {
      {"", "", ""},
      {"abc", "abc", "abc"},
      {"é", "é", "e\u0301"},
      {"e\u0301", "é", "e\u0301"},
      {"Vie\u0323\u0302t", "Việt", "Vie\u0323\u0302t"},
      {"Vie\u0302\u0323t", "Việt", "Vie\u0323\u0302t"},  // marks in the other order
      {"q\u0307\u0323", "q\u0323\u0307", "q\u0323\u0307"},
      {"\u212B", "Å", "A\u030A"},                  // a singleton
      {"\u0958", "\u0915\u093C", "\u0915\u093C"},  // excluded from composition
      {"\u0344", "\u0308\u0301", "\u0308\u0301"},  // begins with a mark
      {"각", "각", "\u1100\u1161\u11A8"},
      {"\u1100\u1161\u11A8", "각", "\u1100\u1161\u11A8"},
      {"가\u11A8", "각", "\u1100\u1161\u11A8"},
      {"가\u11A7", "가\u11A7", "\u1100\u1161\u11A7"},  // one before the first tail
      {"e\u0315\u0301", "é\u0315", "e\u0301\u0315"},   // a mark of a higher class between
      {"a\u0300b\u0301", "àb\u0301", "a\u0300b\u0301"},
      {"\U0001D15E", "\U0001D157\U0001D165", "\U0001D157\U0001D165"},
      {"\uFB1D", "\u05D9\u05B4", "\u05D9\u05B4"},
      {"\U00011935\U00011930", "\U00011935\U00011930", "\U00011935\U00011930"},  // Unicode 13
  };
  for (const auto& [text, nfc, nfd] : kCases) {
    EXPECT_EQ(NormalizeNfc(text), nfc) << text;
    EXPECT_EQ(NormalizeNfd(text), nfd) << text;
  }
}

// The forms' own laws, on any text: applying one again changes nothing, and each can be had from
// the other.
TEST(NfcTest, FormsAreStableAndAgree) {
  for (uint64_t i = 0; i < 2000; ++i) {
    const std::string text = RandomText(41, i, 30);
    const std::string nfc = NormalizeNfc(text), nfd = NormalizeNfd(text);
    ASSERT_EQ(ValidUtf8Prefix(nfc), nfc.size());
    ASSERT_EQ(NormalizeNfc(nfc), nfc) << text;
    ASSERT_EQ(NormalizeNfd(nfd), nfd) << text;
    ASSERT_EQ(NormalizeNfc(nfd), nfc) << text;
    ASSERT_EQ(NormalizeNfd(nfc), nfd) << text;
  }
}

TEST(NfcTest, AMegabyteOfMarksIsSorted) {
  std::string text = "a";
  for (int i = 0; i < 200000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const std::string nfd = NormalizeNfd(text);
  EXPECT_EQ(nfd.size(), text.size());
  EXPECT_EQ(nfd.substr(1, 2), "\u0323");
  EXPECT_EQ(nfd.substr(nfd.size() - 2), "\u0301");
}

}  // namespace
}  // namespace cria::trainer
