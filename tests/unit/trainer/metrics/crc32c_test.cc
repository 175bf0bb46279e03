#include "trainer/metrics/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace cria::trainer {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32cTest, GivesThePublishedValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending.push_back(static_cast<char>(i));
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
}

TEST(Crc32cTest, MaskRotatesAndAdds) {
  EXPECT_EQ(MaskedCrc32c(""), 0xa282ead8u);
  // 0xe3069283 rotated right by 15 is 0x2507c60d.
  EXPECT_EQ(MaskedCrc32c("123456789"), 0x2507c60du + 0xa282ead8u);
}

}  // namespace
}  // namespace cria::trainer
