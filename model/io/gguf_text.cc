#include "model/io/gguf_text.h"

#include <charconv>
#include <cmath>
#include <cstdint>

namespace cria::model {

std::string GgufQuoted(std::string_view text) {
  constexpr size_t kShownMax = 80;
  std::string out = "\"";
  for (const char c : text.substr(0, kShownMax)) out += c < ' ' || c > '~' ? '?' : c;
  return out + (text.size() > kShownMax ? "...\"" : "\"");
}

bool IsUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<uint8_t>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    // Lengths by the lead byte; the least code point that needs them refuses overlong forms.
    const size_t extra = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - i <= extra) return false;
    uint32_t code = lead & (0x3fu >> extra);
    for (size_t k = 1; k <= extra; ++k) {
      const auto byte = static_cast<uint8_t>(text[i + k]);
      if (byte >> 6 != 2) return false;
      code = code << 6 | (byte & 0x3fu);
    }
    const uint32_t least = extra == 3 ? 0x10000 : extra == 2 ? 0x800 : 0x80;
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += extra + 1;
  }
  return true;
}

double ShortestDouble(float value) {
  if (!std::isfinite(value)) return static_cast<double>(value);
  char digits[64];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), value);
  double out = 0;
  std::from_chars(digits, end.ptr, out);
  return out;
}

}  // namespace cria::model
