// A model's text for a terminal: nothing in it can move the cursor, change colours or rename the
// window.
//
//   std::fputs(TerminalText(piece).c_str(), stdout);
//
// Control characters but line break and tab become '?', those of Unicode's second block (U+0080 to
// U+009F) too. Thread-safe. The text is valid UTF-8.

#ifndef CRIA_TRAINER_GENERATE_TERMINAL_TEXT_H_
#define CRIA_TRAINER_GENERATE_TERMINAL_TEXT_H_

#include <string>
#include <string_view>

namespace cria::trainer {

std::string TerminalText(std::string_view text);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_GENERATE_TERMINAL_TEXT_H_
