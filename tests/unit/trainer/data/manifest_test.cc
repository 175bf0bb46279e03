// trainer/data/manifest.h and token_dataset.h: whatever byte of a prepared folder is changed, what
// comes is one error that names the file; a good one reads back as it was written.

#include "trainer/data/manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/unit/trainer/data/test_folder.h"
#include "trainer/data/token_dataset.h"

namespace cria::trainer {
namespace {

// Both splits opened as a trainer would.
Status OpenAll(const std::string& dir) {
  for (const char* split : {"train", "val"}) {
    const StatusOr<TokenDataset> dataset = TokenDataset::Open(dir, split);
    if (!dataset.ok()) return dataset.status();
  }
  return OkStatus();
}

std::string ReplaceOnce(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ManifestTest, ReadsBackWhatWasWritten) {
  const std::string dir = MakeTestFolder("manifest");
  const Manifest written = WriteTestData(dir, MakeDocuments(40, 90, 1), MakeDocuments(3, 9, 2));
  const Manifest read = ReadManifest(dir).value();
  EXPECT_EQ(read.source, "test");
  EXPECT_EQ(read.vocab_size, 1000);
  EXPECT_EQ(read.bos_id, 0);
  EXPECT_EQ(read.eos_id, 1);
  EXPECT_EQ(read.token_type, TokenType::kUint16);
  EXPECT_EQ(read.train.num_tokens, written.train.num_tokens);
  EXPECT_EQ(read.train.num_documents, 40);
  ASSERT_EQ(read.train.shards.size(), written.train.shards.size());
  EXPECT_GT(read.train.shards.size(), 1u);
  EXPECT_EQ(read.train.shards[1].hash, written.train.shards[1].hash);
  EXPECT_TRUE(VerifyFiles(dir, read).ok());
}

TEST(ManifestTest, EveryByteOfTheManifestIsGuarded) {
  const std::string dir = MakeTestFolder("flip_manifest");
  WriteTestData(dir, MakeDocuments(2, 9, 1), MakeDocuments(1, 9, 2));
  const std::string path = JoinPath(dir, kManifestFile);
  const std::string good = ReadFile(path).value();
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int mask : {0x01, 0x80}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ mask);
      // White space between values is no content: a space for a newline changes nothing.
      if (std::strchr(" \n", good[at]) != nullptr && std::strchr(" \n\t\r", bad[at]) != nullptr) {
        continue;
      }
      ASSERT_TRUE(WriteFileAtomic(path, bad).ok());
      const Status status = OpenAll(dir);
      ASSERT_FALSE(status.ok()) << "byte " << at << " mask " << mask;
      ASSERT_EQ(status.code(), StatusCode::kDataLoss) << Message(status);
      ASSERT_NE(Message(status).find(path), std::string::npos) << Message(status);
      ASSERT_EQ(Message(status).find('\n'), std::string::npos) << Message(status);
    }
  }
  for (size_t size = 0; size + 1 < good.size(); size += 7) {
    ASSERT_TRUE(WriteFileAtomic(path, good.substr(0, size)).ok());
    ASSERT_EQ(OpenAll(dir).code(), StatusCode::kDataLoss) << "cut to " << size;
  }
}

TEST(ManifestTest, EveryByteOfAShardIsGuarded) {
  const std::string dir = MakeTestFolder("flip_shard");
  WriteTestData(dir, {{2, 3, 4, 5, 6, 7, 8, 9}}, {{5}});
  ASSERT_TRUE(OpenAll(dir).ok());
  for (const char* file : {"train_000000.bin", "val_000000.bin"}) {
    const std::string path = JoinPath(dir, file);
    const std::string good = ReadFile(path).value();
    for (size_t at = 0; at < good.size(); ++at) {
      // In place: the hash has to tell, not a time stamp or an inode.
      const int fd = open(path.c_str(), O_RDWR);
      ASSERT_GE(fd, 0);
      const char bad = static_cast<char>(good[at] ^ 0x10);
      ASSERT_EQ(pwrite(fd, &bad, 1, static_cast<off_t>(at)), 1);
      const Status status = OpenAll(dir);
      ASSERT_EQ(status.code(), StatusCode::kDataLoss) << "byte " << at;
      ASSERT_NE(Message(status).find(path), std::string::npos) << Message(status);
      ASSERT_EQ(pwrite(fd, &good[at], 1, static_cast<off_t>(at)), 1);
      close(fd);
    }
    for (size_t size = 0; size < good.size(); size += 13) {
      ASSERT_TRUE(WriteFileAtomic(path, good.substr(0, size)).ok());
      ASSERT_EQ(OpenAll(dir).code(), StatusCode::kDataLoss) << "cut to " << size;
    }
    ASSERT_TRUE(WriteFileAtomic(path, good).ok());
  }
  ASSERT_TRUE(RemoveAll(JoinPath(dir, "val_000000.bin")).ok());
  EXPECT_EQ(OpenAll(dir).code(), StatusCode::kNotFound);
}

TEST(ManifestTest, SaysWhatIsMissingOrUnknown) {
  const std::string dir = MakeTestFolder("missing");
  EXPECT_EQ(ReadManifest(dir).status().code(), StatusCode::kNotFound);
  WriteTestData(dir, {{2}}, {});
  EXPECT_EQ(TokenDataset::Open(dir, "test").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(TokenDataset::Open(dir, "val").value().num_tokens(), 0);
}

// A manifest whose checksum is right (so: written by a program, not by chance) can still lie.
TEST(ManifestTest, RefusesValuesThatCannotBe) {
  const std::string dir = MakeTestFolder("lies");
  const Manifest good = WriteTestData(dir, {{2, 3}}, {{4}});
  const auto code_of = [&](const Manifest& manifest) {
    EXPECT_TRUE(WriteManifest(dir, manifest).ok());
    return ReadManifest(dir).status().code();
  };
  EXPECT_EQ(code_of(good), StatusCode::kOk);

  Manifest bad = good;
  bad.train.num_tokens += 1;
  EXPECT_EQ(code_of(bad), StatusCode::kDataLoss);
  bad = good;
  bad.train.shards[0].file = "../secret";
  EXPECT_EQ(code_of(bad), StatusCode::kDataLoss);
  bad = good;
  bad.tokenizer_file = "/etc/passwd";
  EXPECT_EQ(code_of(bad), StatusCode::kDataLoss);
  bad = good;
  bad.eos_id = 1000;
  EXPECT_EQ(code_of(bad), StatusCode::kDataLoss);
  bad = good;
  bad.eos_id = bad.bos_id;
  EXPECT_EQ(code_of(bad), StatusCode::kDataLoss);
  bad = good;
  bad.vocab_size = 70000;
  EXPECT_EQ(code_of(bad), StatusCode::kDataLoss);
  bad = good;
  bad.val.num_documents = -1;
  EXPECT_EQ(code_of(bad), StatusCode::kDataLoss);
}

TEST(ManifestTest, RefusesTokensOutsideTheVocabulary) {
  const std::string dir = MakeTestFolder("vocabulary");
  Manifest manifest = WriteTestData(dir, {{2, 3, 999}}, {{4}});
  manifest.vocab_size = 999;
  ASSERT_TRUE(WriteManifest(dir, manifest).ok());
  const Status status = OpenAll(dir);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(Message(status).find("token 3 is 999, the vocabulary has 999"), std::string::npos)
      << Message(status);
}

TEST(ManifestTest, RefusesAnotherVersion) {
  const std::string dir = MakeTestFolder("version");
  WriteTestData(dir, {{2}}, {{3}});
  const std::string path = JoinPath(dir, kManifestFile);
  const std::string good = ReadFile(path).value();
  ASSERT_TRUE(WriteFileAtomic(path, ReplaceOnce(good, "\"version\": 1", "\"version\": 2")).ok());
  const Status status = ReadManifest(dir).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(Message(status).find("version 2, must be"), std::string::npos) << Message(status);
}

TEST(TokenDatasetTest, ReadsAcrossShardBorders) {
  const std::vector<std::vector<int32_t>> documents = MakeDocuments(30, 20, 3);
  std::vector<int32_t> all;
  for (const std::vector<int32_t>& document : documents) {
    all.push_back(0);
    all.insert(all.end(), document.begin(), document.end());
    all.push_back(1);
  }
  for (const int64_t tokens_per_shard : {1, 7, 64, 100000}) {
    const std::string dir = MakeTestFolder("borders");
    WriteTestData(dir, documents, {}, 1000, tokens_per_shard);
    const TokenDataset dataset = TokenDataset::Open(dir, "train").value();
    ASSERT_EQ(dataset.num_tokens(), static_cast<int64_t>(all.size()));
    EXPECT_EQ(dataset.num_documents(), 30);
    for (size_t first = 0; first < all.size(); first += 5) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{8}, all.size() - first}) {
        if (first + count > all.size()) continue;
        std::vector<int32_t> out(count);
        dataset.Read(static_cast<int64_t>(first), out);
        ASSERT_TRUE(std::equal(out.begin(), out.end(), all.begin() + static_cast<int64_t>(first)));
      }
    }
  }
}

}  // namespace
}  // namespace cria::trainer
