#include "base/brief.h"

#include <gtest/gtest.h>

#include "base/str.h"

namespace cria {
namespace {

TEST(BriefTest, KeepsShortTextsAndCutsLongOnesBetweenCharacters) {
  EXPECT_EQ(Brief(""), "");
  EXPECT_EQ(Brief("abcd", 4), "abcd");
  EXPECT_EQ(Brief("abcde", 4), "abcd... (5 bytes)");
  EXPECT_EQ(Brief("ab\xe4\xb8\xad"
                  "c",
                  4),
            "ab... (6 bytes)");
  EXPECT_EQ(Brief(std::string(9, '\x80'), 5), StrCat(std::string(1, '\x80'), "... (9 bytes)"));
  EXPECT_EQ(Brief("abc", 0), "... (3 bytes)");
}

}  // namespace
}  // namespace cria
