// trainer/data/batch_stream.h and audit.h: samples against a naive oracle, and the ways in which
// other trainers' loaders lost or repeated data, each as a test that tells its story.

#include "trainer/data/batch_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/unit/trainer/data/test_folder.h"
#include "trainer/data/audit.h"
#include "trainer/data/token_dataset.h"

namespace cria::trainer {
namespace {

constexpr int32_t kBos = 0;
constexpr int32_t kEos = 1;

TokenDataset MakeDataset(const std::string& name,
                         const std::vector<std::vector<int32_t>>& documents,
                         int64_t tokens_per_shard = 50) {
  const std::string dir = MakeTestFolder(name);
  WriteTestData(dir, documents, {}, 1000, tokens_per_shard);
  return TokenDataset::Open(dir, "train").value();
}

// A document's token, with what a row must say about it.
struct Place {
  int32_t token;
  int32_t target;
  int64_t document;
};

std::vector<Place> PlacesOf(const std::vector<std::vector<int32_t>>& documents) {
  std::vector<Place> places;
  for (size_t d = 0; d < documents.size(); ++d) {
    std::vector<int32_t> ids = {kBos};
    ids.insert(ids.end(), documents[d].begin(), documents[d].end());
    ids.push_back(kEos);
    for (size_t i = 0; i < ids.size(); ++i) {
      places.push_back(
          {ids[i], i + 1 < ids.size() ? ids[i + 1] : kNoTarget, static_cast<int64_t>(d)});
    }
  }
  return places;
}

// What one training run reads, token by token.
std::vector<int32_t> Log(const BatchStream& stream, int64_t step_begin, int64_t step_end,
                         int64_t global_batch, int64_t world_size = 1) {
  std::vector<int32_t> log;
  Batch batch;
  for (int64_t step = step_begin; step < step_end; ++step) {
    for (int64_t rank = 0; rank < world_size; ++rank) {
      const SampleRange range = SamplesOfRank(step, global_batch, rank, world_size);
      stream.Read(range.first, range.count, &batch);
      log.insert(log.end(), batch.tokens_BT.begin(), batch.tokens_BT.end());
    }
  }
  return log;
}

TEST(BatchStreamTest, RowsAreTheWindowsOfThePackedDocuments) {
  const auto documents = MakeDocuments(37, 25, 11);
  const std::vector<Place> places = PlacesOf(documents);
  const TokenDataset dataset = MakeDataset("oracle", documents, 64);
  ASSERT_EQ(dataset.num_tokens(), static_cast<int64_t>(places.size()));
  for (const int64_t seq : {1, 2, 3, 16, 31, 64, 1000, 5000}) {
    const BatchStream stream(&dataset, {.seq = seq, .seed = 1, .shuffle = false});
    const int64_t num_windows = (dataset.num_tokens() + seq - 1) / seq;
    ASSERT_EQ(stream.samples_per_epoch(), num_windows);
    Batch batch;
    stream.Read(0, num_windows, &batch);
    ASSERT_EQ(batch.batch, num_windows);
    ASSERT_EQ(batch.seq, seq);
    int64_t num_valid = 0;
    for (int64_t i = 0; i < num_windows * seq; ++i) {
      const size_t at = static_cast<size_t>(i);
      const int64_t row_begin = i / seq * seq;
      if (at >= places.size()) {
        ASSERT_EQ(batch.tokens_BT[at], kEos);
        ASSERT_EQ(batch.targets_BT[at], kNoTarget);
        ASSERT_EQ(batch.doc_start_BT[at], static_cast<int64_t>(places.size()) - row_begin);
        ASSERT_EQ(batch.positions_BT[at], i - static_cast<int64_t>(places.size()));
        continue;
      }
      int64_t start = i;
      while (start > row_begin &&
             places[static_cast<size_t>(start) - 1].document == places[at].document) {
        --start;
      }
      ASSERT_EQ(batch.tokens_BT[at], places[at].token) << "seq " << seq << " place " << i;
      ASSERT_EQ(batch.targets_BT[at], places[at].target) << "seq " << seq << " place " << i;
      ASSERT_EQ(batch.doc_start_BT[at], start - row_begin) << "seq " << seq << " place " << i;
      ASSERT_EQ(batch.positions_BT[at], i - start) << "seq " << seq << " place " << i;
      num_valid += places[at].target != kNoTarget;
    }
    EXPECT_EQ(batch.num_valid, num_valid);
  }
}

TEST(BatchStreamTest, TheExampleInTheHeaderHolds) {
  const TokenDataset dataset =
      MakeDataset("header", {{10, 11}, {12, 13, 14, 15}, {16, 17, 18, 19, 20, 21}});
  const BatchStream stream(&dataset, {.seq = 8, .seed = 0, .shuffle = false});
  ASSERT_EQ(stream.samples_per_epoch(), 3);
  Batch batch;
  stream.Read(0, 3, &batch);
  EXPECT_EQ(batch.tokens_BT, (std::vector<int32_t>{0,  10, 11, 1,  0,  12, 13, 14, 15, 1, 0, 16,
                                                   17, 18, 19, 20, 21, 1,  1,  1,  1,  1, 1, 1}));
  EXPECT_EQ(batch.targets_BT,
            (std::vector<int32_t>{10, 11, 1,  -100, 12, 13,   14,   15,   1,    -100, 16,   17,
                                  18, 19, 20, 21,   1,  -100, -100, -100, -100, -100, -100, -100}));
  EXPECT_EQ(batch.positions_BT, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0, 1,
                                                      2, 3, 4, 5, 0, 1, 0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(batch.doc_start_BT, (std::vector<int32_t>{0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 2, 2,
                                                      2, 2, 2, 2, 0, 0, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(batch.num_valid, 18 - 3);
}

TEST(BatchStreamTest, EachEpochIsAnotherOrderOfTheSameWindows) {
  for (const int64_t num_tokens : {2, 3, 17, 64, 65, 1000}) {
    const TokenDataset dataset = MakeDataset(
        "order", {std::vector<int32_t>(static_cast<size_t>(num_tokens - 2), 7)}, 100000);
    const BatchStream stream(&dataset, {.seq = 1, .seed = 3, .shuffle = true});
    std::vector<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> order;
      for (int64_t i = 0; i < num_tokens; ++i) {
        order.push_back(stream.WindowOf(epoch * num_tokens + i));
      }
      orders.push_back(order);
      std::sort(order.begin(), order.end());
      for (int64_t i = 0; i < num_tokens; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
    }
    if (num_tokens > 10) {
      EXPECT_NE(orders[0], orders[1]);
      EXPECT_NE(orders[1], orders[2]);
      const BatchStream other(&dataset, {.seq = 1, .seed = 4, .shuffle = true});
      int64_t num_same = 0;
      for (int64_t i = 0; i < num_tokens; ++i) num_same += other.WindowOf(i) == stream.WindowOf(i);
      EXPECT_LT(num_same, num_tokens / 2);
    }
  }
}

TEST(BatchStreamTest, AllocatesNothingAfterTheFirstRead) {
  const TokenDataset dataset = MakeDataset("allocate", MakeDocuments(20, 30, 1));
  const BatchStream stream(&dataset, {.seq = 16, .seed = 1, .shuffle = true});
  Batch batch;
  stream.Read(0, 4, &batch);
  const int32_t* const before[] = {batch.tokens_BT.data(), batch.targets_BT.data(),
                                   batch.positions_BT.data(), batch.doc_start_BT.data()};
  for (int64_t step = 1; step < 20; ++step) stream.Read(step * 4, step % 5, &batch);
  stream.Read(0, 4, &batch);
  const int32_t* const after[] = {batch.tokens_BT.data(), batch.targets_BT.data(),
                                  batch.positions_BT.data(), batch.doc_start_BT.data()};
  EXPECT_TRUE(std::equal(std::begin(before), std::end(before), std::begin(after)));
}

// verl #7401: a run that resumed exactly at an epoch's end skipped the next epoch.
TEST(BatchStreamTest, ResumeAtAnEpochsEndGoesOnWithTheNextEpoch) {
  const TokenDataset dataset = MakeDataset("epoch_end", MakeDocuments(20, 30, 1));
  const BatchStream stream(&dataset, {.seq = 8, .seed = 5, .shuffle = true});
  const int64_t n = stream.samples_per_epoch();
  std::multiset<int64_t> windows;
  for (int64_t s = n; s < 2 * n; ++s) windows.insert(stream.WindowOf(s));
  for (int64_t w = 0; w < n; ++w) EXPECT_EQ(windows.count(w), 1u);

  // One sample a step: step n is the first of epoch 1, with or without a stop after step n - 1.
  const std::vector<int32_t> whole = Log(stream, 0, 2 * n, 1);
  const BatchStream resumed(&dataset, {.seq = 8, .seed = 5, .shuffle = true});
  std::vector<int32_t> halves = Log(stream, 0, n, 1);
  const std::vector<int32_t> rest = Log(resumed, n, 2 * n, 1);
  halves.insert(halves.end(), rest.begin(), rest.end());
  EXPECT_EQ(whole, halves);
}

// entrenar #294: after a resume the loader began at the first shard again, and nobody noticed until
// the validation loss rose. The log of token ids must be the same, wherever the run was cut.
TEST(BatchStreamTest, TheLogOfTokensIsTheSameAcrossAResumeAtAnyStep) {
  const auto documents = MakeDocuments(60, 40, 2);
  const std::string dir = MakeTestFolder("resume");
  WriteTestData(dir, documents, {}, 1000, 100);  // about a dozen shards
  const TokenDataset dataset = TokenDataset::Open(dir, "train").value();
  const BatchStream::Options options = {.seq = 16, .seed = 9, .shuffle = true};
  const BatchStream stream(&dataset, options);
  const int64_t num_steps = 2 * stream.samples_per_epoch() / 3;
  const std::vector<int32_t> whole = Log(stream, 0, num_steps, 3);
  for (int64_t cut = 0; cut <= num_steps; ++cut) {
    // Opened anew, as a new process would.
    const TokenDataset again = TokenDataset::Open(dir, "train").value();
    const BatchStream resumed(&again, options);
    std::vector<int32_t> log = Log(stream, 0, cut, 3);
    const std::vector<int32_t> rest = Log(resumed, cut, num_steps, 3);
    log.insert(log.end(), rest.begin(), rest.end());
    ASSERT_EQ(log, whole) << "cut at step " << cut;
  }
}

// torchtitan PR 816 and its kin: another number of ranks must read the same global batches.
TEST(BatchStreamTest, AnyWorldSizeReadsTheSameGlobalBatches) {
  const TokenDataset dataset = MakeDataset("world", MakeDocuments(60, 40, 2));
  const BatchStream stream(&dataset, {.seq = 16, .seed = 9, .shuffle = true});
  const std::vector<int32_t> one = Log(stream, 0, 20, 6, 1);
  for (const int64_t world_size : {2, 3, 4, 6, 7}) {
    EXPECT_EQ(Log(stream, 0, 20, 6, world_size), one) << world_size << " ranks";
  }
}

// parcae #10, LongLive #71: each rank shuffled with its own seed, so that 36 % of the tokens were
// never seen. Megatron-Bridge PR 5944: ranks got 4, 3 and 3 samples and drifted apart.
TEST(AuditTest, EveryTokenOnceForAnyWorldBatchAndLength) {
  const TokenDataset dataset = MakeDataset("audit", MakeDocuments(101, 33, 4), 97);
  for (const int64_t world_size : {1, 2, 3, 5, 8}) {
    for (const int64_t global_batch : {1, 3, 8, 10, 1000}) {
      for (const int64_t seq : {1, 7, 64}) {
        for (const int64_t epoch : {0, 1, 7}) {
          const AuditReport report = AuditEpoch(dataset, {.seq = seq,
                                                          .world_size = world_size,
                                                          .global_batch = global_batch,
                                                          .seed = 1,
                                                          .epoch = epoch})
                                         .value();
          ASSERT_TRUE(report.ok) << report.problem;
          ASSERT_EQ(report.num_seen, dataset.num_tokens());
          ASSERT_EQ(report.num_repeated + report.num_missing, 0);
          ASSERT_EQ(report.num_valid, dataset.num_tokens() - 101);
          ASSERT_EQ(report.num_samples, (dataset.num_tokens() + seq - 1) / seq);
          ASSERT_EQ(report.num_padding, report.num_samples * seq - dataset.num_tokens());
        }
      }
    }
  }
}

TEST(AuditTest, RanksGetSharesThatDifferByAtMostOneSample) {
  for (const int64_t world_size : {1, 2, 3, 7}) {
    for (const int64_t global_batch : {0, 1, 10, 64}) {
      int64_t next = 5 * global_batch;
      for (int64_t rank = 0; rank < world_size; ++rank) {
        const SampleRange range = SamplesOfRank(5, global_batch, rank, world_size);
        EXPECT_EQ(range.first, next);
        EXPECT_GE(range.count, global_batch / world_size);
        EXPECT_LE(range.count, (global_batch + world_size - 1) / world_size);
        next += range.count;
      }
      EXPECT_EQ(next, 6 * global_batch);
    }
  }
}

// speculators PR 427: the rank within the node was taken for the rank, so both nodes read the same.
TEST(AuditTest, TwoNodesOfTwoRanksReadDifferentSamples) {
  const auto covered = [](bool uses_local_rank) {
    std::map<int64_t, int> seen;
    for (int64_t node = 0; node < 2; ++node) {
      for (int64_t local_rank = 0; local_rank < 2; ++local_rank) {
        const int64_t rank = uses_local_rank ? local_rank : node * 2 + local_rank;
        const SampleRange range = SamplesOfRank(0, 8, rank, 4);
        for (int64_t i = 0; i < range.count; ++i) ++seen[range.first + i];
      }
    }
    return seen;
  };
  EXPECT_EQ(covered(false).size(), 8u);
  for (const auto& [sample, count] : covered(false)) EXPECT_EQ(count, 1) << sample;
  EXPECT_EQ(covered(true).size(), 4u);  // what the bug did: half of the batch, twice
}

TEST(AuditTest, FindsThatTheManifestAndTheShardsDisagree) {
  const std::string dir = MakeTestFolder("audit_documents");
  Manifest manifest = WriteTestData(dir, MakeDocuments(10, 10, 1), {});
  manifest.train.num_documents = 9;
  ASSERT_TRUE(WriteManifest(dir, manifest).ok());
  const TokenDataset dataset = TokenDataset::Open(dir, "train").value();
  const AuditReport report = AuditEpoch(dataset, {.seq = 8}).value();
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.problem, "10 documents start in the shards, the manifest says 9");
}

TEST(AuditTest, RefusesOptionsOutOfRange) {
  const TokenDataset dataset = MakeDataset("range", {{5}});
  for (const AuditOptions& options :
       {AuditOptions{.seq = 0}, AuditOptions{.world_size = 0}, AuditOptions{.global_batch = -1},
        AuditOptions{.epoch = -1}, AuditOptions{.seq = int64_t{1} << 40}}) {
    EXPECT_EQ(AuditEpoch(dataset, options).status().code(), StatusCode::kInvalidArgument);
  }
  const TokenDataset empty = MakeDataset("empty", {});
  EXPECT_EQ(AuditEpoch(empty, {}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(BatchStream(&empty, {.seq = 4, .seed = 0, .shuffle = true}).samples_per_epoch(), 0);
}

// llm.c #212, #263: 32-bit indices overflow. Two sparse shards hold more than 2^31 tokens between
// them without taking disk; the tokens around 2^31 are marked.
TEST(BatchStreamTest, IndicesBeyondTwoToThe31Hold) {
  const std::string dir = MakeTestFolder("virtual");
  constexpr int64_t kEdge = int64_t{1} << 31;
  constexpr int64_t kShardTokens = (int64_t{1} << 30) + 5000;
  Manifest manifest = WriteTestData(dir, {{2}}, {});
  manifest.bos_id = 998;
  manifest.eos_id = 999;
  manifest.train = {};
  for (int shard = 0; shard < 2; ++shard) {
    const std::string name = StrCat("train_00000", shard, ".bin");
    const int fd = open(JoinPath(dir, name).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ASSERT_GE(fd, 0);
    const int32_t header[3] = {20240520, 1, static_cast<int32_t>(kShardTokens)};
    ASSERT_EQ(pwrite(fd, header, sizeof(header), 0), 12);
    ASSERT_EQ(ftruncate(fd, 1024 + 2 * kShardTokens), 0);
    for (int64_t index = kEdge - 3; index < kEdge + 3; ++index) {
      const int64_t inside = index - shard * kShardTokens;
      if (inside < 0 || inside >= kShardTokens) continue;
      const uint16_t id = static_cast<uint16_t>(100 + index - kEdge);
      ASSERT_EQ(pwrite(fd, &id, 2, 1024 + 2 * inside), 2);
    }
    close(fd);
    manifest.train.shards.push_back({.file = name, .num_tokens = kShardTokens, .hash = "none"});
    manifest.train.num_tokens += kShardTokens;
  }
  ASSERT_TRUE(WriteManifest(dir, manifest).ok());
  const TokenDataset dataset = TokenDataset::Open(dir, "train", {.verify = false}).value();
  ASSERT_GT(dataset.num_tokens(), kEdge);

  for (const int64_t seq : {2, 1024}) {
    const BatchStream stream(&dataset, {.seq = seq, .seed = 0, .shuffle = false});
    Batch batch;
    stream.Read(kEdge / seq - 1, 2,
                &batch);  // the window before 2^31 and the one that starts there
    for (int64_t i = -2; i < 2; ++i) {
      const size_t at = static_cast<size_t>(seq + i);
      EXPECT_EQ(batch.tokens_BT[at], 100 + i);
      EXPECT_EQ(batch.targets_BT[at], 101 + i);
    }
    // Samples far beyond 2^31 as well: epoch 5.
    stream.Read(5 * stream.samples_per_epoch() + kEdge / seq, 1, &batch);
    EXPECT_EQ(batch.tokens_BT[0], 100);
  }
  ASSERT_TRUE(RemoveAll(dir).ok());
}

}  // namespace
}  // namespace cria::trainer
