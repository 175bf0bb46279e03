#include "trainer/data/text_cut.h"

#include <algorithm>
#include <cstdint>

#include "base/check.h"

namespace cria::trainer {
namespace {

bool IsNewline(char c) { return c == '\n' || c == '\r'; }

bool IsAsciiAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// True when a character that is certainly no white space starts at `at`. Unicode's White_Space
// outside ASCII: U+0085, U+00A0 (lead byte C2), U+1680 (E1), U+2000..U+205F (E2), U+3000 (E3 80
// 80).
bool StartsNonSpace(std::string_view text, size_t at) {
  const uint8_t c = static_cast<uint8_t>(text[at]);
  if (c < 0x80) return c > ' ';
  if (c == 0xE3) {
    return at + 1 < text.size() && static_cast<uint8_t>(text[at + 1]) > 0x80 &&
           static_cast<uint8_t>(text[at + 1]) < 0xC0;
  }
  return c >= 0xC3 && c != 0xE1 && c != 0xE2;
}

bool IsContinuationByte(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

size_t FindCut(std::string_view text, size_t limit) {
  CRIA_CHECK(limit > 0 && limit < text.size(), "limit ", limit, " of ", text.size());
  const size_t stop = limit > kCutReachBytes ? limit - kCutReachBytes : 0;
  for (size_t at = limit; at > stop; --at) {
    if (IsNewline(text[at - 1]) && StartsNonSpace(text, at)) return at;
  }
  for (size_t at = limit; at > stop; --at) {
    if (text[at] == ' ' && IsAsciiAlnum(text[at - 1])) return at;
  }
  // A UTF-8 character has at most 3 continuation bytes.
  for (size_t at = limit; at > 0 && at + 4 > limit; --at) {
    if (!IsContinuationByte(text[at])) return at;
  }
  return limit;
}

}  // namespace cria::trainer
