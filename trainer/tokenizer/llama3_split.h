// Llama 3's split expression by hand: exactly the pieces of kLlama3Pattern, ten times faster.
//
//   SplitLlama3(text, [&](std::string_view piece) { ... });   // text is valid UTF-8
//
// PCRE2 on kLlama3Pattern (split_pattern.h) is the definition; a test compares the two on random
// Unicode, code and long runs. Each alternative of the expression is one function or line below:
//
//   1  (?i:'s|'t|'re|'ve|'m|'ll|'d)      Contraction
//   2  [^\r\n\p{L}\p{N}]?\p{L}+          letters, after at most one other character
//   3  \p{N}{1,3}                        up to three digits
//   4   ?[^\s\p{L}\p{N}]+[\r\n]*         signs, after at most one space, with line ends
//   5  \s*[\r\n]+                        white space up to its last line end
//   6  \s+(?!\S)                         white space but for the character before a word
//   7  \s+                               that one character
//
// Thread-safe. Cost: linear, no look-ahead beyond the piece and the white space after it.

#ifndef CRIA_TRAINER_TOKENIZER_LLAMA3_SPLIT_H_
#define CRIA_TRAINER_TOKENIZER_LLAMA3_SPLIT_H_

#include <emmintrin.h>

#include <bit>
#include <cstdint>
#include <string_view>

#include "trainer/tokenizer/char_class.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {

class Llama3Splitter {
 public:
  // `text`: valid UTF-8 that outlives the splitter.
  explicit Llama3Splitter(std::string_view text)
      : at_(text.data()), end_(text.data() + text.size()) {}

  bool done() const { return at_ == end_; }

  // The next piece, never empty. Precondition: not done().
  std::string_view Next() {
    const char* const begin = at_;
    at_ = PieceEnd(begin);
    return {begin, static_cast<size_t>(at_ - begin)};
  }

 private:
  struct Char {
    CharClass char_class;
    int length;
  };

  Char At(const char* p) const {
    const auto lead = static_cast<uint8_t>(*p);
    if (lead < 0x80) return {char_class_internal::kAscii[lead], 1};
    const int length = ValidUtf8Length(lead);
    return {ClassOf(DecodeUtf8(p, length)), length};
  }

  const char* PieceEnd(const char* p) const {
    const Char first = At(p);
    const char* const next = p + first.length;
    switch (first.char_class) {
      case CharClass::kLetter:
        return SkipLetters(next);
      case CharClass::kNumber:
        return SkipNumbers(next);
      case CharClass::kNewline:
        return WhiteSpaceEnd(p);
      default:
        break;
    }
    if (*p == '\'') {
      if (const int length = Contraction(next); length > 0) return next + length;
    }
    if (next < end_) {
      const Char second = At(next);
      if (second.char_class == CharClass::kLetter) return SkipLetters(next + second.length);
      if (*p == ' ' && second.char_class == CharClass::kOther) {
        return SkipSigns(next + second.length);
      }
    }
    return first.char_class == CharClass::kOther ? SkipSigns(next) : WhiteSpaceEnd(p);
  }

  // The length of what follows the apostrophe in an English contraction, 0 when none does. In
  // case-insensitive Unicode, U+017F (long s, C5 BF) is an s as well.
  int Contraction(const char* p) const {
    if (p == end_) return 0;
    const char a = static_cast<char>(*p | 0x20);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 1;
    if (end_ - p < 2) return 0;
    if (p[0] == '\xC5' && p[1] == '\xBF') return 2;
    const char b = static_cast<char>(p[1] | 0x20);
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 2 : 0;
  }

  // Sixteen bytes a step while they are ASCII letters.
  const char* SkipLetters(const char* p) const {
    while (true) {
      while (end_ - p >= 16) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        // With the case bit set, a letter is 'a' .. 'z'; moved to the bottom of the signed range,
        // -128 .. -103, one signed compare tells.
        const __m128i lower = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
        const __m128i shifted = _mm_add_epi8(lower, _mm_set1_epi8(128 - 'a'));
        const __m128i letters = _mm_cmplt_epi8(shifted, _mm_set1_epi8(-128 + 26));
        const auto mask = static_cast<uint32_t>(_mm_movemask_epi8(letters));
        if (mask != 0xFFFF) {
          p += std::countr_one(mask);
          break;
        }
        p += 16;
      }
      if (p == end_) return p;
      const Char c = At(p);
      if (c.char_class != CharClass::kLetter) return p;
      p += c.length;
    }
  }

  const char* SkipNumbers(const char* p) const {
    for (int count = 1; count < 3 && p < end_; ++count) {
      const Char c = At(p);
      if (c.char_class != CharClass::kNumber) break;
      p += c.length;
    }
    return p;
  }

  const char* SkipSigns(const char* p) const {
    while (p < end_) {
      const Char c = At(p);
      if (c.char_class != CharClass::kOther) break;
      p += c.length;
    }
    while (p < end_ && (*p == '\r' || *p == '\n')) ++p;
    return p;
  }

  const char* WhiteSpaceEnd(const char* p) const {
    const char* const begin = p;
    const char* last_newline_end = nullptr;
    const char* last = p;  // the last character of the run
    while (p < end_) {
      const Char c = At(p);
      if (c.char_class != CharClass::kSpace && c.char_class != CharClass::kNewline) break;
      last = p;
      p += c.length;
      if (c.char_class == CharClass::kNewline) last_newline_end = p;
    }
    if (last_newline_end != nullptr) return last_newline_end;  // alternative 5
    return p == end_ || last == begin ? p : last;              // alternatives 6 and 7
  }

  const char* at_;
  const char* const end_;
};

// A function of its own also where it is used once: within a larger one its loop loses registers.
template <typename Emit>
[[gnu::noinline]] void SplitLlama3(std::string_view text, Emit&& emit) {
  Llama3Splitter splitter(text);
  while (!splitter.done()) emit(splitter.Next());
}

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_LLAMA3_SPLIT_H_
