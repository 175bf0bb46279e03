#include "trainer/generate/terminal_text.h"

#include <cstdint>

namespace cria::trainer {

std::string TerminalText(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const bool is_c1 =
        byte == 0xC2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    if (is_c1) ++i;
    const bool is_control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    out += is_c1 || is_control ? '?' : text[i];
  }
  return out;
}

}  // namespace cria::trainer
