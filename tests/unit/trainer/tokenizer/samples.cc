#include "tests/unit/trainer/tokenizer/samples.h"

#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "trainer/tokenizer/bpe_trainer.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

// Draws numbers one after another.
class Dice {
 public:
  Dice(uint64_t seed, std::string_view name, uint64_t index)
      : rng_(seed, StreamOf(name)), next_(index << 32) {}
  uint64_t Below(uint64_t n) { return rng_.Below(next_++, n); }

 private:
  const Rng rng_;
  uint64_t next_;
};

constexpr const char* kChunks[] = {
    " the",       "The",        " and",       "'s",         "'S",         "'ſ",
    "'ll",        "'LL",        "'lL",        "'ve",        "'re",        "'d",
    "'m",         "'t",         "'",          "''",         " ",          "  ",
    "   ",        "\t",         "\n",         "\r\n",       "\r",         "\n\n",
    " \n",        "\n ",        "\v",         "\f",         "0",          "12",
    "345",        "6789",       "3.14",       "x",          "HTTPServer", "snake_case",
    "f(x)->y;",   "//",         "{",          "}",          "!!",         "…",
    "—",          "“",          "”",          "\u00A0",     "\u0085",     "\u2028",
    "\u3000",     "\u180E",     "\u200D",     "\uFEFF",     "é",          "e\u0301",
    "ß",          "İ",          "ǅ",          "ſ",          "中文",       "日本語",
    "한국어",     "русский",    "العربية",    "हिन्दी",      "ไทย",        "Việt",
    "١٢٣",        "²",          "½",          "Ⅷ",          "😀",          "👨‍👩‍👧",
    "🇩🇪",         "\U0001D400", "\u0378",     "\U000E0001", "\u1C89",     "\U000105C0",
    "\U00011F02", "\U00010D40", "\U0002EBF0", "\U00031350", "<|eot_id|>", "<|begin_of_text|>"};

std::string RandomCharacter(Dice* dice) {
  static constexpr uint32_t kEnds[] = {0x80,   0x100,  0x250,   0x600,
                                       0x1000, 0x3100, 0x10000, 0x110000};
  uint32_t c = 0;
  do {
    c = static_cast<uint32_t>(dice->Below(kEnds[dice->Below(std::size(kEnds))]));
  } while (c >= 0xD800 && c < 0xE000);
  std::string text;
  AppendUtf8(c, &text);
  return text;
}

}  // namespace

std::string TrainingText() {
  std::string text;
  static constexpr const char* kWords[] = {"the",   "and",   "of",     "lord",  "house", "king",
                                           "shall", "unto",  "people", "earth", "water", "spirit",
                                           "begat", "years", "saying", "light"};
  static constexpr const char* kEndings[] = {"", "", "", "s", "ing", "eth", "ed", "ness", "hold"};
  Dice dice(7, "training text", 0);
  for (int i = 0; i < 4000; ++i) {
    text += kWords[dice.Below(std::size(kWords))];
    text += kEndings[dice.Below(std::size(kEndings))];
    const uint64_t kind = dice.Below(40);
    text += kind == 0 ? ".\n" : kind == 1 ? ", " : kind == 2 ? " 12345 " : kind == 3 ? "'s " : " ";
    if (dice.Below(60) == 0) text += "for (int i = 0; i < n; ++i) {\n  sum += x[i];\n}\n";
    if (dice.Below(60) == 0) text += "中文字符 русский 😀 ";
  }
  return text;
}

const Tokenizer& SmallTokenizer() {
  static const Tokenizer tokenizer = [] {
    StatusOr<BpeTrainer> trainer = BpeTrainer::Create({.vocab_size = 500});
    CRIA_CHECK(trainer.ok(), Message(trainer.status()));
    trainer->AddText(TrainingText());
    StatusOr<Tokenizer> trained = trainer->Train();
    CRIA_CHECK(trained.ok(), Message(trained.status()));
    return *trained;
  }();
  return tokenizer;
}

std::string RandomText(uint64_t seed, uint64_t index, uint64_t max_characters) {
  Dice dice(seed, "random text", index);
  const uint64_t length = dice.Below(max_characters + 1);
  const uint64_t random_share = dice.Below(4);
  std::string text;
  for (uint64_t i = 0; i < length; ++i) {
    std::string unit = dice.Below(4) < random_share ? RandomCharacter(&dice)
                                                    : kChunks[dice.Below(std::size(kChunks))];
    const uint64_t repeats = dice.Below(12) == 0 ? 1 + dice.Below(40) : 1;
    for (uint64_t r = 0; r < repeats; ++r) text += unit;
  }
  return text;
}

std::string RandomBytes(uint64_t seed, uint64_t index, uint64_t max_bytes) {
  Dice dice(seed, "random bytes", index);
  std::string bytes(dice.Below(max_bytes + 1), '\0');
  for (char& c : bytes) c = static_cast<char>(dice.Below(256));
  return bytes;
}

}  // namespace cria::trainer
