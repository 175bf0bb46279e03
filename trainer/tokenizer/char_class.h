// The five kinds of characters that Llama 3's split expression tells apart.
//
//   ClassOf(U'é') == CharClass::kLetter;   ClassOf(U'\n') == CharClass::kNewline
//
// The table is made from what PCRE2 answers for the classes of split_pattern.h, so that it can't
// disagree with the expression; that takes about 20 ms, once, at the first non-ASCII character.
// Thread-safe. Cost of a look-up: two loads.

#ifndef CRIA_TRAINER_TOKENIZER_CHAR_CLASS_H_
#define CRIA_TRAINER_TOKENIZER_CHAR_CLASS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cria::trainer {

enum class CharClass : uint8_t {
  kOther,    // none of those below
  kLetter,   // \p{L}
  kNumber,   // \p{N}
  kSpace,    // \s without the next two
  kNewline,  // CR, LF
};

// Two levels: a block of 256 code points each, equal blocks stored once.
class CharClasses {
 public:
  CharClasses();
  CharClass Of(uint32_t code_point) const {
    return classes_[static_cast<size_t>(block_[code_point >> 8]) * 256 + (code_point & 255)];
  }

 private:
  std::array<uint16_t, 0x1100> block_{};
  std::vector<CharClass> classes_;
};

namespace char_class_internal {
const CharClasses& Table();

constexpr std::array<CharClass, 128> MakeAscii() {
  std::array<CharClass, 128> classes{};
  for (int c = 'a'; c <= 'z'; ++c) classes[c] = classes[c - 32] = CharClass::kLetter;
  for (int c = '0'; c <= '9'; ++c) classes[c] = CharClass::kNumber;
  for (const char c : {'\t', '\v', '\f', ' '}) classes[c] = CharClass::kSpace;
  classes['\n'] = classes['\r'] = CharClass::kNewline;
  return classes;
}
inline constexpr std::array<CharClass, 128> kAscii = MakeAscii();
}  // namespace char_class_internal

// code_point <= U+10FFFF.
inline CharClass ClassOf(uint32_t code_point) {
  if (code_point < 128) return char_class_internal::kAscii[code_point];
  return char_class_internal::Table().Of(code_point);
}

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_CHAR_CLASS_H_
