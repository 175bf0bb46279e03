#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"

namespace cria {
namespace {

// From xxHash 0.8's specification and its command line tool.
TEST(HashTest, GivesXxHashKnownAnswers) {
  EXPECT_EQ(Hash64(""), 0x2d06800538d394c2u);
  EXPECT_EQ(HashHex(""), "99aa06d3014798d86001c324468d497f");
}

TEST(HashTest, SeedChangesTheValue) { EXPECT_NE(Hash64("a", 1), Hash64("a", 2)); }

TEST(HashTest, PiecesAndFilesGiveTheHashOfTheWhole) {
  std::string bytes(3'000'001, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 7);
  const std::string expected = HashHex(bytes);
  ASSERT_EQ(expected.size(), 32u);

  Hasher hasher;
  EXPECT_EQ(hasher.Hex(), HashHex(""));
  for (size_t at = 0, step = 1; at < bytes.size(); at += step, step = step * 3 + 1) {
    hasher.Update(std::string_view(bytes).substr(at, step));
    EXPECT_EQ(hasher.Hex(), HashHex(std::string_view(bytes).substr(0, at + step)));
  }
  EXPECT_EQ(hasher.Hex(), expected);

  const std::string path = JoinPath(testing::TempDir(), "hashed");
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
  EXPECT_EQ(HashFileHex(path).value(), expected);
  bytes[1'500'000] ^= 1;
  EXPECT_NE(HashHex(bytes), expected);
  EXPECT_EQ(HashFileHex(path + ".none").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(HashFileHex(testing::TempDir()).ok());
}

}  // namespace
}  // namespace cria
