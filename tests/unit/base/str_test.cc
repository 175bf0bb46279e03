#include "base/str.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace cria {
namespace {

TEST(StrTest, CatJoinsEveryKindOfPart) {
  const std::string name = "f";
  EXPECT_EQ(StrCat("read ", name, ':', 12, ' ', -3, ' ', 0.1, ' ', true), "read f:12 -3 0.1 true");
  EXPECT_EQ(StrCat(), "");
  EXPECT_EQ(StrCat(std::numeric_limits<uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(StrCat(std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(StrCat(0.1f), "0.1");
  EXPECT_EQ(StrCat(std::numeric_limits<double>::infinity()), "inf");
}

TEST(StrTest, FormatTakesAnyLength) {
  EXPECT_EQ(StrFormat("%6.2f|%s", 3.14159, "x"), "  3.14|x");
  EXPECT_EQ(StrFormat("%s", std::string(5000, 'y').c_str()), std::string(5000, 'y'));
  EXPECT_EQ(StrFormat("%s", ""), "");
}

TEST(StrTest, HumanUnits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(3.5 * (1 << 30)), "3.5 GiB");
  EXPECT_EQ(HumanCount(950), "950");
  EXPECT_EQ(HumanCount(8.03e9), "8.03 B");
  EXPECT_EQ(HumanSeconds(0.34), "0.3s");
  EXPECT_EQ(HumanSeconds(12.4), "12s");
  EXPECT_EQ(HumanSeconds(245), "4m 05s");
  EXPECT_EQ(HumanSeconds(2 * 3600 + 3 * 60), "2h 03m");
  EXPECT_EQ(HumanSeconds(-1), "?");
}

}  // namespace
}  // namespace cria
