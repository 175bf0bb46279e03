#include "base/brief.h"

#include "base/str.h"

namespace cria {

std::string Brief(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  size_t end = bytes_max;
  // Back to a character's first byte; bytes that are no UTF-8 are cut where they are.
  while (end > 0 && bytes_max - end < 4 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  return StrCat(text.substr(0, end), "... (", text.size(), " bytes)");
}

}  // namespace cria
