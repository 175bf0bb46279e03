#include "model/io/zip_archive.h"

#include <gtest/gtest.h>

#include "tests/unit/model/io/torch_builder.h"

namespace cria::model {
namespace {

TEST(ZipArchiveTest, ReadsStoredEntriesWithAndWithoutZip64) {
  for (const bool zip64 : {false, true}) {
    const std::string bytes = BuildZip({{"a", "first"}, {"b/c", ""}, {"d", "third"}}, zip64);
    const auto zip = ZipArchive::Parse(bytes, "x.zip");
    ASSERT_TRUE(zip.ok()) << zip.status();
    ASSERT_EQ(zip->entries().size(), 3u);
    EXPECT_EQ(zip->entries()[0].data, "first");
    EXPECT_EQ(zip->Find("d")->data, "third");
    EXPECT_EQ(zip->Find("b/c")->data, "");
    EXPECT_EQ(zip->Find("e"), nullptr);
  }
  EXPECT_TRUE(ZipArchive::Parse(BuildZip({}), "x.zip").ok());
}

TEST(ZipArchiveTest, ACommentAtTheEndIsSkipped) {
  std::string bytes = BuildZip({{"a", "first"}});
  bytes[bytes.size() - 2] = 5;
  bytes += "hello";
  const auto zip = ZipArchive::Parse(bytes, "x.zip");
  ASSERT_TRUE(zip.ok()) << zip.status();
  EXPECT_EQ(zip->Find("a")->data, "first");
}

TEST(ZipArchiveTest, CompressionAndEncryptionAreRefusedByEntry) {
  const std::string whole = BuildZip({{"entry", "data"}});
  const size_t record = whole.find("PK\x01\x02");
  for (const auto& [at, what] : {std::pair<size_t, const char*>{8, "encrypted"},
                                 std::pair<size_t, const char*>{10, "method 1"}}) {
    std::string bytes = whole;
    bytes[record + at] = 1;
    const Status status = ZipArchive::Parse(bytes, "x.zip").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Message(status).find("entry"), std::string::npos) << status;
    EXPECT_NE(Message(status).find(what), std::string::npos) << status;
  }
}

// A directory that promises more entries than it has bytes must not be believed.
TEST(ZipArchiveTest, CountsAreCheckedBeforeMemoryIsTaken) {
  std::string bytes = BuildZip({{"a", "first"}}, /*zip64=*/true);
  const size_t end64 = bytes.find("PK\x06\x06");
  for (size_t i = 0; i < 7; ++i) bytes[end64 + 32 + i] = '\xff';
  const Status status = ZipArchive::Parse(bytes, "x.zip").status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
  EXPECT_NE(Message(status).find("zip entries"), std::string::npos) << status;
}

}  // namespace
}  // namespace cria::model
