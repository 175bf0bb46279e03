// trainer/data/shard.h: llm.c's two formats, byte for byte; damage is an error; 64-bit offsets.

#include "trainer/data/shard.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "base/file.h"
#include "base/hash.h"
#include "gtest/gtest.h"
#include "tests/unit/trainer/data/test_folder.h"

namespace cria::trainer {
namespace {

std::vector<int32_t> Iota(int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::string HeaderOf(int32_t magic, int32_t version, int32_t count) {
  const int32_t fields[3] = {magic, version, count};
  std::string header(1024, '\0');
  std::memcpy(header.data(), fields, sizeof(fields));
  return header;
}

// Makes a shard whose tokens are zero but for one, without writing the zeros.
void MakeSparseShard(const std::string& path, int64_t num_tokens, int64_t index, uint16_t id) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ASSERT_GE(fd, 0);
  const std::string header = HeaderOf(20240520, 1, static_cast<int32_t>(num_tokens));
  ASSERT_EQ(pwrite(fd, header.data(), header.size(), 0), 1024);
  ASSERT_EQ(ftruncate(fd, 1024 + 2 * num_tokens), 0);
  ASSERT_EQ(pwrite(fd, &id, 2, 1024 + 2 * index), 2);
  close(fd);
}

TEST(ShardTest, WritesExactlyTheBytesOfLlmC) {
  const std::string dir = MakeTestFolder("bytes");
  ShardWriter small(dir, "small", TokenType::kUint16, 100);
  ASSERT_TRUE(small.Append(std::vector<int32_t>{1, 258, 65535}).ok());
  ASSERT_TRUE(small.Finish().ok());
  EXPECT_EQ(ReadFile(dir + "/small_000000.bin").value(),
            HeaderOf(20240520, 1, 3) + std::string("\x01\x00\x02\x01\xff\xff", 6));

  ShardWriter large(dir, "large", TokenType::kUint32, 100);
  ASSERT_TRUE(large.Append(std::vector<int32_t>{128000, 0x7fffffff}).ok());
  ASSERT_TRUE(large.Finish().ok());
  EXPECT_EQ(ReadFile(dir + "/large_000000.bin").value(),
            HeaderOf(20240801, 7, 2) + std::string("\x00\xf4\x01\x00\xff\xff\xff\x7f", 8));
}

TEST(ShardTest, RollsToTheNextFileAndReadsBackWhatWasWritten) {
  for (const int64_t tokens_per_shard : {1, 7, 10, 21, 1000}) {
    const std::string dir = MakeTestFolder("roll");
    ShardWriter writer(dir, "train", TokenType::kUint32, tokens_per_shard);
    const std::vector<int32_t> ids = Iota(21);
    ASSERT_TRUE(writer.Append(std::span(ids).first(5)).ok());
    ASSERT_TRUE(writer.Append(std::span(ids).subspan(5)).ok());
    const std::vector<ShardInfo> shards = writer.Finish().value();
    ASSERT_EQ(static_cast<int64_t>(shards.size()), (21 + tokens_per_shard - 1) / tokens_per_shard);
    std::vector<int32_t> back;
    for (const ShardInfo& info : shards) {
      const ShardReader shard = ShardReader::Open(JoinPath(dir, info.file)).value();
      ASSERT_EQ(shard.num_tokens(), info.num_tokens);
      ASSERT_LE(shard.num_tokens(), tokens_per_shard);
      EXPECT_EQ(HashFileHex(shard.path()).value(), info.hash);
      const size_t old_size = back.size();
      back.resize(old_size + static_cast<size_t>(shard.num_tokens()));
      shard.Read(0, std::span(back).subspan(old_size));
    }
    EXPECT_EQ(back, ids);
  }
}

TEST(ShardTest, WritesNoFileWithoutTokens) {
  const std::string dir = MakeTestFolder("none");
  ShardWriter writer(dir, "val", TokenType::kUint16, 100);
  ASSERT_TRUE(writer.Append({}).ok());
  EXPECT_TRUE(writer.Finish().value().empty());
  EXPECT_TRUE(ListDir(dir).value().empty());
}

TEST(ShardTest, LeavesNothingBehindWhenNotFinished) {
  const std::string dir = MakeTestFolder("unfinished");
  {
    ShardWriter writer(dir, "train", TokenType::kUint16, 100);
    ASSERT_TRUE(writer.Append(Iota(10)).ok());
  }
  EXPECT_TRUE(ListDir(dir).value().empty());
}

struct BadShard {
  const char* what;
  std::string bytes;
  const char* message;
};

TEST(ShardTest, RefusesHostileFilesNamingFileAndValue) {
  const std::string good = HeaderOf(20240520, 1, 3) + std::string(6, '\1');
  const std::vector<BadShard> cases = {
      {"empty", "", ": 0 bytes"},
      {"short", good.substr(0, 1023), ": 1023 bytes"},
      {"magic", HeaderOf(20240522, 1, 3) + std::string(6, '\1'), "magic number 20240522"},
      {"version", HeaderOf(20240520, 7, 3) + std::string(6, '\1'), "version 7, must be 1"},
      {"version32", HeaderOf(20240801, 1, 1) + std::string(4, '\1'), "version 1, must be 7"},
      {"negative", HeaderOf(20240520, 1, -1) + std::string(6, '\1'), "token count -1"},
      {"truncated", good.substr(0, good.size() - 1), "1029 bytes, must be 1030"},
      {"longer", good + "x", "1031 bytes, must be 1030"},
      {"huge", HeaderOf(20240801, 7, 0x7fffffff) + "abcd", "1028 bytes, must be 8589935612"},
      {"swapped", HeaderOf(0x68d83501, 1, 3) + std::string(6, '\1'), "magic number"},
  };
  const std::string dir = MakeTestFolder("hostile");
  for (const BadShard& bad : cases) {
    const std::string path = JoinPath(dir, bad.what);
    ASSERT_TRUE(WriteFileAtomic(path, bad.bytes).ok());
    const StatusOr<ShardReader> shard = ShardReader::Open(path);
    ASSERT_FALSE(shard.ok()) << bad.what;
    EXPECT_EQ(shard.status().code(), StatusCode::kDataLoss) << bad.what;
    EXPECT_NE(Message(shard.status()).find(path), std::string::npos) << bad.what;
    EXPECT_NE(Message(shard.status()).find(bad.message), std::string::npos)
        << bad.what << ": " << Message(shard.status());
  }
  EXPECT_EQ(ShardReader::Open(dir + "/nowhere").status().code(), StatusCode::kNotFound);
}

// llm.c's loader cast the file offset to int: shards over 2 GiB wrapped (llmc/dataloader.h).
TEST(ShardTest, ReadsBehindTwoGigabytesOfTheLargestShard) {
  const std::string path = MakeTestFolder("large") + "/sparse.bin";
  const int64_t last = kShardTokensMax - 1;
  MakeSparseShard(path, kShardTokensMax, last, 4242);
  const ShardReader shard = ShardReader::Open(path).value();
  EXPECT_EQ(shard.num_tokens(), kShardTokensMax);
  int32_t ids[2] = {-1, -1};
  shard.Read(last - 1, ids);
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[1], 4242);
  ASSERT_TRUE(RemoveAll(path).ok());
}

TEST(ShardDeathTest, ReadOutsideTheShardIsOurBug) {
  const std::string dir = MakeTestFolder("outside");
  ShardWriter writer(dir, "train", TokenType::kUint16, 100);
  ASSERT_TRUE(writer.Append(Iota(10)).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const ShardReader shard = ShardReader::Open(dir + "/train_000000.bin").value();
  int32_t ids[2];
  EXPECT_DEATH(shard.Read(9, ids), "first 9 count 2 of 10");
  EXPECT_DEATH(shard.Read(-1, ids), "first -1");
}

TEST(ShardTest, TokenTypeFollowsTheVocabulary) {
  EXPECT_EQ(TokenTypeFor(65536), TokenType::kUint16);
  EXPECT_EQ(TokenTypeFor(65537), TokenType::kUint32);
  EXPECT_EQ(ParseTokenType("uint32").value(), TokenType::kUint32);
  EXPECT_EQ(ParseTokenType("int8").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cria::trainer
