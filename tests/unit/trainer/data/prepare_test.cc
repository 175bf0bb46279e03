// trainer/data/prepare.h: text in, the same text out; corpora that are too small, too odd or no
// text; the folder is complete or has no manifest; memory stays flat.

#include "trainer/data/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zstd.h>

#include <csignal>
#include <cstdio>
#include <fstream>

#include "base/file.h"
#include "base/parallel.h"
#include "gtest/gtest.h"
#include "tests/unit/trainer/data/test_folder.h"
#include "trainer/data/audit.h"
#include "trainer/data/data_tokenizer.h"
#include "trainer/data/token_dataset.h"

namespace cria::trainer {
namespace {

using Documents = std::vector<std::string>;

// A few kilobytes of text that a small vocabulary can be learnt from.
std::string Prose(int num_lines) {
  std::string text;
  for (int i = 0; i < num_lines; ++i) {
    text += StrCat("And the ", i % 7, " sons of the ", i % 13, " kings went down to the city ", i,
                   ", and it was so.\n");
  }
  return text;
}

// The documents of a split, decoded.
Documents DecodeSplit(const std::string& dir, const char* split) {
  const TokenDataset dataset = TokenDataset::Open(dir, split).value();
  const Tokenizer tokenizer = LoadDataTokenizer(dir, dataset.manifest()).value();
  std::vector<int32_t> ids(static_cast<size_t>(dataset.num_tokens()));
  dataset.Read(0, ids);
  Documents documents;
  std::vector<int32_t> document;
  bool is_inside = false;
  for (const int32_t id : ids) {
    if (id == dataset.bos_id()) {
      EXPECT_FALSE(is_inside);
      is_inside = true;
      document.clear();
    } else if (id == dataset.eos_id()) {
      EXPECT_TRUE(is_inside);
      is_inside = false;
      documents.push_back(tokenizer.Decode(document));
    } else {
      EXPECT_TRUE(is_inside);
      document.push_back(id);
    }
  }
  EXPECT_FALSE(is_inside);
  EXPECT_EQ(static_cast<int64_t>(documents.size()), dataset.num_documents());
  return documents;
}

class PrepareTest : public testing::Test {
 protected:
  PrepareTest() {
    options_.out_dir = JoinPath(dir_, "out");
    options_.vocab_size = 280;
  }

  void AddInput(const std::string& name, const std::string& bytes) {
    const std::string path = JoinPath(dir_, name);
    ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
    options_.source.inputs.push_back(path);
  }

  // Makes options_ use a tokenizer that was trained elsewhere.
  void UseGivenTokenizer() {
    PrepareOptions other = options_;
    other.source.inputs = {JoinPath(dir_, "prose.txt")};
    other.out_dir = JoinPath(dir_, "other");
    ASSERT_TRUE(WriteFileAtomic(other.source.inputs[0], Prose(100)).ok());
    const StatusOr<PrepareResult> result = PrepareData(other);
    ASSERT_TRUE(result.ok()) << Message(result.status());
    options_.tokenizer_path = JoinPath(other.out_dir, kTokenizerFile);
  }

  // The error that preparing gives, which must leave neither manifest nor shards.
  Status Failure() {
    const Status status = PrepareData(options_).status();
    EXPECT_FALSE(status.ok());
    if (IsDir(options_.out_dir)) {
      const std::vector<std::string> names = ListDir(options_.out_dir).value();
      for (const std::string& name : names) {
        EXPECT_EQ(name, kTokenizerFile);
      }
    }
    return status;
  }

  const std::string dir_ =
      MakeTestFolder(testing::UnitTest::GetInstance()->current_test_info()->name());
  PrepareOptions options_;
};

TEST_F(PrepareTest, TextComesBackAsItWent) {
  Documents want = {Prose(50),
                    "caf\xC3\xA9 \xE5\xA5\xBD\n\n \t",
                    std::string("\xFF\xFE bad", 6),
                    "<|begin_of_text|> and <|end_of_text|> are text here",
                    "x",
                    "\r\n\r\n"};
  for (int i = 0; i < 30; ++i) want.push_back(Prose(i + 1));
  for (size_t i = 0; i < want.size(); ++i) AddInput(StrCat("in", 100 + i, ".txt"), want[i]);
  options_.val_fraction = 0.2;
  options_.shard_tokens = 1000;
  const PrepareResult result = PrepareData(options_).value();
  EXPECT_FALSE(result.is_reused);
  EXPECT_GT(result.manifest.train.shards.size(), 3u);
  EXPECT_TRUE(VerifyFiles(options_.out_dir, result.manifest).ok());

  Documents train = DecodeSplit(options_.out_dir, "train");
  Documents val = DecodeSplit(options_.out_dir, "val");
  EXPECT_GE(val.size(), 1u);
  // Each split keeps the corpus's order.
  size_t next_train = 0;
  size_t next_val = 0;
  for (const std::string& text : want) {
    if (next_train < train.size() && train[next_train] == text) {
      ++next_train;
    } else {
      ASSERT_LT(next_val, val.size());
      ASSERT_EQ(val[next_val++], text);
    }
  }
  EXPECT_EQ(next_train, train.size());
  EXPECT_EQ(next_val, val.size());
  const TokenDataset dataset = TokenDataset::Open(options_.out_dir, "train").value();
  EXPECT_TRUE(AuditEpoch(dataset, {.seq = 64, .world_size = 3}).value().ok);
}

TEST_F(PrepareTest, ThreadsDoNotChangeAByte) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += StrCat("{\"text\": \"line ", i * 7919 % 1000, "\"}\n");
  AddInput("a.jsonl", lines);
  AddInput("b.txt", Prose(20000));  // several parts
  std::vector<std::string> hashes[2];
  const int num_threads = NumThreads();
  for (const int threads : {1, 2}) {
    SetNumThreads(threads);
    options_.out_dir = JoinPath(dir_, StrCat("out", threads));
    const Manifest manifest = PrepareData(options_).value().manifest;
    for (const SplitInfo* split : {&manifest.train, &manifest.val}) {
      for (const ShardInfo& shard : split->shards) hashes[threads - 1].push_back(shard.hash);
    }
    hashes[threads - 1].push_back(manifest.tokenizer_fingerprint);
  }
  SetNumThreads(num_threads);
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(hashes[0].size(), 3u);
}

TEST_F(PrepareTest, ALongDocumentHasTheTokensOfTheWhole) {
  const std::string text = Prose(20000);
  AddInput("long.txt", text);
  AddInput("short.txt", "short");
  options_.val_fraction = 0;
  options_.source.part_bytes = 1000;
  ASSERT_TRUE(PrepareData(options_).ok());
  const TokenDataset dataset = TokenDataset::Open(options_.out_dir, "train").value();
  const Tokenizer tokenizer = LoadDataTokenizer(options_.out_dir, dataset.manifest()).value();
  std::vector<int32_t> want = {dataset.bos_id()};
  tokenizer.Encode(text, &want);
  want.push_back(dataset.eos_id());
  std::vector<int32_t> got(want.size());
  dataset.Read(0, got);
  EXPECT_EQ(got, want);
}

TEST_F(PrepareTest, ASingleDocumentIsCutIntoTrainingAndValidationText) {
  for (const double fraction : {0.02, 0.5, 0.9}) {
    for (const size_t part_bytes : {1000, 1 << 18}) {
      const std::string text = Prose(500);
      options_.source.inputs.clear();
      AddInput("one.txt", text);
      options_.val_fraction = fraction;
      options_.source.part_bytes = part_bytes;
      options_.force = true;
      ASSERT_TRUE(PrepareData(options_).ok());
      const Documents train = DecodeSplit(options_.out_dir, "train");
      const Documents val = DecodeSplit(options_.out_dir, "val");
      ASSERT_EQ(train.size(), 1u);
      ASSERT_EQ(val.size(), 1u);
      EXPECT_EQ(train[0] + val[0], text);
      EXPECT_NEAR(static_cast<double>(val[0].size()) / static_cast<double>(text.size()), fraction,
                  0.01);
    }
  }
}

TEST_F(PrepareTest, AnEmptyCorpusIsAnError) {
  AddInput("empty.txt", "");
  Status status = Failure();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("no text"), std::string::npos) << Message(status);
  UseGivenTokenizer();
  EXPECT_EQ(Failure().code(), StatusCode::kInvalidArgument);
}

TEST_F(PrepareTest, AOneByteCorpusIsAnErrorOrOneToken) {
  AddInput("byte.txt", "x");
  EXPECT_EQ(Failure().code(), StatusCode::kInvalidArgument);
  options_.val_fraction = 0;
  Status status = Failure();  // nothing to train 280 tokens on
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("280"), std::string::npos) << Message(status);

  UseGivenTokenizer();
  const Manifest manifest = PrepareData(options_).value().manifest;
  EXPECT_EQ(manifest.train.num_tokens, 3);  // BOS x EOS
  EXPECT_EQ(manifest.val.num_tokens, 0);
  EXPECT_TRUE(manifest.val.shards.empty());
  EXPECT_EQ(DecodeSplit(options_.out_dir, "train"), (Documents{"x"}));
  EXPECT_TRUE(DecodeSplit(options_.out_dir, "val").empty());
}

TEST_F(PrepareTest, TwoBytesCanBeSplit) {
  AddInput("bytes.txt", "xy");
  UseGivenTokenizer();
  ASSERT_TRUE(PrepareData(options_).ok());
  EXPECT_EQ(DecodeSplit(options_.out_dir, "train"), (Documents{"x"}));
  EXPECT_EQ(DecodeSplit(options_.out_dir, "val"), (Documents{"y"}));
}

TEST_F(PrepareTest, BinaryIsAnErrorUnlessAllowed) {
  AddInput("prose.md", Prose(100));
  AddInput("image.bin", std::string("\x00\x01\xFF\x00 data", 9));
  const Status status = Failure();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("image.bin"), std::string::npos) << Message(status);
  options_.source.allow_binary = true;
  options_.val_fraction = 0;
  ASSERT_TRUE(PrepareData(options_).ok());
  EXPECT_EQ(DecodeSplit(options_.out_dir, "train")[1], std::string("\x00\x01\xFF\x00 data", 9));
}

TEST_F(PrepareTest, AVocabularyLargerThanTheTextAllowsIsAnError) {
  AddInput("small.txt", Prose(3));
  options_.vocab_size = 100000;
  const Status status = Failure();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("100000"), std::string::npos) << Message(status);
}

TEST_F(PrepareTest, AFolderThatMatchesIsLeftAsItIs) {
  AddInput("a.txt", Prose(60));
  AddInput("b.txt", Prose(50));
  const Manifest first = PrepareData(options_).value().manifest;
  const PrepareResult second = PrepareData(options_).value();
  EXPECT_TRUE(second.is_reused);
  EXPECT_EQ(second.manifest.options_hash, first.options_hash);

  // A shard is gone: made again. Other options: an error that keeps the folder. With force: made.
  ASSERT_TRUE(RemoveAll(JoinPath(options_.out_dir, "train_000000.bin")).ok());
  EXPECT_FALSE(PrepareData(options_).value().is_reused);
  options_.vocab_size = 270;
  const Status other = PrepareData(options_).status();
  EXPECT_EQ(other.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(Message(other).find("--force"), std::string::npos) << Message(other);
  EXPECT_EQ(ReadManifest(options_.out_dir).value().vocab_size, 280);
  options_.force = true;
  EXPECT_EQ(PrepareData(options_).value().manifest.vocab_size, 270);

  // The input has changed.
  options_.force = false;
  ASSERT_TRUE(WriteFileAtomic(options_.source.inputs[0], Prose(61)).ok());
  EXPECT_EQ(PrepareData(options_).status().code(), StatusCode::kAlreadyExists);
}

TEST_F(PrepareTest, ADamagedManifestIsNotSilentlyReplaced) {
  AddInput("a.txt", Prose(60));
  ASSERT_TRUE(PrepareData(options_).ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(options_.out_dir, kManifestFile), "{}").ok());
  EXPECT_EQ(PrepareData(options_).status().code(), StatusCode::kDataLoss);
  options_.force = true;
  EXPECT_TRUE(PrepareData(options_).ok());
}

TEST_F(PrepareTest, FewerShardsThanBeforeLeaveNoOldOnes) {
  AddInput("a.txt", Prose(200));
  options_.shard_tokens = 500;
  ASSERT_TRUE(PrepareData(options_).ok());
  EXPECT_GT(ListDir(options_.out_dir).value().size(), 5u);
  options_.shard_tokens = 1'000'000;
  options_.force = true;
  ASSERT_TRUE(PrepareData(options_).ok());
  EXPECT_EQ(ListDir(options_.out_dir).value(),
            (std::vector<std::string>{"manifest.json", "tokenizer.json", "train_000000.bin",
                                      "val_000000.bin"}));
}

TEST_F(PrepareTest, TheOutputInsideTheInputIsNoInput) {
  AddInput("a.txt", Prose(60));
  options_.source.inputs = {dir_};
  const PrepareResult first = PrepareData(options_).value();
  const PrepareResult second = PrepareData(options_).value();
  EXPECT_TRUE(second.is_reused);
  EXPECT_EQ(first.manifest.train.num_bytes + first.manifest.val.num_bytes,
            static_cast<int64_t>(Prose(60).size()));
}

TEST_F(PrepareTest, TwoProcessesDoNotPrepareTheSameFolder) {
  AddInput("a.txt", Prose(60));
  ASSERT_TRUE(MakeDirs(options_.out_dir).ok());
  const int fd = open(options_.out_dir.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(PrepareData(options_).status().code(), StatusCode::kFailedPrecondition);
  close(fd);
  EXPECT_TRUE(PrepareData(options_).ok());
}

TEST_F(PrepareTest, AStopLeavesNoManifest) {
  AddInput("a.txt", Prose(200));
  const std::atomic<bool> stop = true;
  options_.stop = &stop;
  EXPECT_EQ(Failure().code(), StatusCode::kCancelled);
}

TEST_F(PrepareTest, AFullDiskLeavesNoManifest) {
  AddInput("a.txt", Prose(20000));
  UseGivenTokenizer();
  // Files can't grow over 100 KB: what a full disk does, without one.
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {.rlim_cur = 100'000, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Status status = Failure();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  EXPECT_NE(Message(status).find(options_.out_dir), std::string::npos) << Message(status);
  EXPECT_NE(Message(status).find("large"), std::string::npos) << Message(status);
}

TEST_F(PrepareTest, AnOutputThatCannotBeIsAnError) {
  AddInput("a.txt", Prose(60));
  options_.out_dir = JoinPath(options_.source.inputs[0], "below_a_file");
  EXPECT_FALSE(PrepareData(options_).ok());
  options_.out_dir = "";
  EXPECT_EQ(PrepareData(options_).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(PrepareTest, RefusesOptionsOutOfRange) {
  AddInput("a.txt", Prose(60));
  const auto code_with = [&](auto change) {
    PrepareOptions options = options_;
    change(options);
    return PrepareData(options).status().code();
  };
  const auto invalid = StatusCode::kInvalidArgument;
  EXPECT_EQ(code_with([](PrepareOptions& o) { o.val_fraction = 1; }), invalid);
  EXPECT_EQ(code_with([](PrepareOptions& o) { o.val_fraction = -0.1; }), invalid);
  EXPECT_EQ(code_with([](PrepareOptions& o) { o.shard_tokens = 0; }), invalid);
  EXPECT_EQ(code_with([](PrepareOptions& o) { o.shard_tokens = int64_t{1} << 31; }), invalid);
  EXPECT_EQ(code_with([](PrepareOptions& o) { o.vocab_size = 10; }), invalid);
  EXPECT_EQ(code_with([](PrepareOptions& o) { o.tokenizer_sample_bytes = 0; }), invalid);
}

TEST_F(PrepareTest, LargeVocabulariesAreStoredInFourBytes) {
  AddInput("a.txt", Prose(60));
  options_.token_type = TokenType::kUint32;
  const Manifest manifest = PrepareData(options_).value().manifest;
  EXPECT_EQ(manifest.token_type, TokenType::kUint32);
  const std::string path = JoinPath(options_.out_dir, manifest.train.shards[0].file);
  EXPECT_EQ(FileSize(path).value(), 1024 + 4 * static_cast<uint64_t>(manifest.train.num_tokens));
}

TEST_F(PrepareTest, AnotherTokenizerInTheFolderIsFound) {
  AddInput("a.txt", Prose(60));
  const Manifest manifest = PrepareData(options_).value().manifest;
  options_.vocab_size = 270;
  UseGivenTokenizer();
  const std::string other = ReadFile(options_.tokenizer_path).value();
  ASSERT_TRUE(WriteFileAtomic(JoinPath(options_.out_dir, kTokenizerFile), other).ok());
  EXPECT_EQ(LoadDataTokenizer(options_.out_dir, manifest).status().code(), StatusCode::kDataLoss);
}

// Compresses `bytes` of text into a file without ever holding it.
void WriteLargeZst(const std::string& path, size_t bytes) {
  std::ofstream out(path, std::ios::binary);
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  std::vector<char> buffer(ZSTD_CStreamOutSize());
  size_t written = 0;
  for (int64_t i = 0; written < bytes; ++i) {
    const std::string line = StrCat("verse ", i, ": the word number ", i * 2654435761 % 100003,
                                    " came unto the children of men\n");
    written += line.size();
    ZSTD_inBuffer from = {line.data(), line.size(), 0};
    const ZSTD_EndDirective mode = written < bytes ? ZSTD_e_continue : ZSTD_e_end;
    for (bool is_done = false; !is_done;) {
      ZSTD_outBuffer to = {buffer.data(), buffer.size(), 0};
      const size_t left = ZSTD_compressStream2(context, &to, &from, mode);
      out.write(buffer.data(), static_cast<std::streamsize>(to.pos));
      is_done = mode == ZSTD_e_end ? left == 0 : from.pos == from.size;
    }
  }
  ZSTD_freeCCtx(context);
}

// Makes the largest resident size the present one.
void ResetPeakMemory() { std::ofstream("/proc/self/clear_refs") << "5"; }

// The process's largest resident size, in bytes.
int64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) * 1024;
  }
  return 0;
}

TEST_F(PrepareTest, MemoryStaysFlatOnALargeInput) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is not flat";
#endif
  constexpr size_t kTextBytes = size_t{64} << 20;
  const std::string path = JoinPath(dir_, "large.txt.zst");
  WriteLargeZst(path, kTextBytes);
  options_.source.inputs = {path};  // one document of 64 MiB
  options_.tokenizer_sample_bytes = int64_t{1} << 20;
  // Everything once, so that libraries and threads have what they keep.
  AddInput("warm.txt", Prose(20000));
  options_.source.inputs = {JoinPath(dir_, "warm.txt")};
  ASSERT_TRUE(PrepareData(options_).ok());

  options_.source.inputs = {path};
  options_.out_dir = JoinPath(dir_, "large");
  ResetPeakMemory();
  const int64_t before = PeakMemory();
  const Manifest manifest = PrepareData(options_).value().manifest;
  const int64_t grown = PeakMemory() - before;
  EXPECT_GT(manifest.train.num_tokens, 10'000'000);
  EXPECT_LT(grown, int64_t{24} << 20) << "of " << kTextBytes << " bytes of text";
  std::printf("64 MiB of text: %lld tokens, peak memory grew by %.1f MiB\n",
              static_cast<long long>(manifest.train.num_tokens),
              static_cast<double>(grown) / (1 << 20));
}

}  // namespace
}  // namespace cria::trainer
