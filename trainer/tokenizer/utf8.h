// UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
//
//   const size_t good = ValidUtf8Prefix(text);          // text.substr(0, good) is valid
//   const size_t held = IncompleteUtf8Suffix(so_far);   // bytes of a character still to come
//
// Thread-safe. Cost: eight ASCII bytes a step, else one character a step.
// Source: The Unicode Standard, table 3-7.

#ifndef CRIA_TRAINER_TOKENIZER_UTF8_H_
#define CRIA_TRAINER_TOKENIZER_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cria::trainer {

// The length (1 to 4) of the valid character at `p`, 0 when there is none; p < end.
inline int Utf8Length(const char* p, const char* end) {
  const auto byte = [p](int i) { return static_cast<uint8_t>(p[i]); };
  const auto continues = [&](int i, uint8_t low, uint8_t high) {
    return i < end - p && byte(i) >= low && byte(i) <= high;
  };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return continues(1, 0x80, 0xBF) ? 2 : 0;
  if (lead < 0xF0) {
    const uint8_t low = lead == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : 0xBF;
    return continues(1, low, high) && continues(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead > 0xF4) return 0;
  const uint8_t low = lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xF4 ? 0x8F : 0xBF;
  return continues(1, low, high) && continues(2, 0x80, 0xBF) && continues(3, 0x80, 0xBF) ? 4 : 0;
}

// The code point of the valid character of `length` bytes at `p`.
inline uint32_t DecodeUtf8(const char* p, int length) {
  const auto bits = [p](int i, int mask) {
    return static_cast<uint32_t>(static_cast<uint8_t>(p[i]) & mask);
  };
  if (length == 1) return bits(0, 0x7F);
  if (length == 2) return bits(0, 0x1F) << 6 | bits(1, 0x3F);
  if (length == 3) return bits(0, 0x0F) << 12 | bits(1, 0x3F) << 6 | bits(2, 0x3F);
  return bits(0, 0x07) << 18 | bits(1, 0x3F) << 12 | bits(2, 0x3F) << 6 | bits(3, 0x3F);
}

// The length of a character in text that is known to be valid, from its first byte.
inline int ValidUtf8Length(uint8_t lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Appends the character; code_point is a Unicode scalar value.
void AppendUtf8(uint32_t code_point, std::string* text);

// The size of the longest valid prefix.
size_t ValidUtf8Prefix(std::string_view text);

// How many bytes at the end (0 to 3) are the beginning of a character that more bytes could
// complete. Bytes that no continuation can make valid are not held.
size_t IncompleteUtf8Suffix(std::string_view text);

// The text with U+FFFD for what is not valid: one for each maximal beginning of a character, as
// Unicode advises and as Hugging Face tokenizers decodes.
std::string ReplaceInvalidUtf8(std::string_view text);

// Calls body(run, is_valid) for the maximal runs of valid characters and of bytes that belong to
// none, in order.
template <typename Body>
void ForEachUtf8Run(std::string_view text, Body&& body) {
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    if (valid > 0) body(text.substr(0, valid), true);
    text.remove_prefix(valid);
    if (text.empty()) return;
    size_t invalid = 1;
    while (invalid < text.size() &&
           Utf8Length(text.data() + invalid, text.data() + text.size()) == 0) {
      ++invalid;
    }
    body(text.substr(0, invalid), false);
    text.remove_prefix(invalid);
  }
}

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_UTF8_H_
