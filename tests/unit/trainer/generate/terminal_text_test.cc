#include "trainer/generate/terminal_text.h"

#include <gtest/gtest.h>

namespace cria::trainer {
namespace {

TEST(TerminalTextTest, ControlCharactersBecomeQuestionMarks) {
  EXPECT_EQ(TerminalText("plain\n\ttext é 中 🦙 \xC2\xA0"),
            "plain\n\ttext é 中 🦙 \xC2\xA0");
  EXPECT_EQ(TerminalText("\x1B]0;title\x07\x1B[2J\r\b\x7F"), "?]0;title??[2J???");
  // U+009B is "escape [" in one character.
  EXPECT_EQ(TerminalText("\xC2\x9B"
                         "31m"),
            "?31m");
  EXPECT_EQ(TerminalText(std::string_view("\0", 1)), "?");
  EXPECT_EQ(TerminalText(""), "");
}

}  // namespace
}  // namespace cria::trainer
