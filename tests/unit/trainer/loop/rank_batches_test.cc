// What the ranks of a job read of a step is the global batch: each token by one dp and cp rank.

#include "trainer/loop/rank_batches.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/str.h"
#include "model/parallel/context_parallel.h"
#include "tests/support/tiny_run.h"
#include "trainer/data/token_dataset.h"

namespace cria::trainer {
namespace {

constexpr int64_t kSeq = 24;

struct Case {
  int dp = 1, cp = 1;
  int64_t batch = 1, micro_batch = 1;
};

// Marks what one rank has of the batch and compares it with the batch; returns its micro-batches.
int Mark(const Case& c, const RankBatches& rank, int cp_rank, int64_t first, const Batch& global,
         std::vector<int>* seen) {
  int64_t sample = rank.samples().first - first;
  const int64_t end = sample + rank.samples().count;
  for (const model::TokenBatch& micro : rank.micro_batches()) {
    EXPECT_EQ(micro.time, kSeq);
    const int64_t rows = micro.batch * kSeq / c.cp;
    EXPECT_EQ(micro.tokens.num_elements(), rows);
    if (sample == end) {  // stands in
      for (int64_t row = 0; row < rows; ++row) EXPECT_EQ(micro.targets.i32()[row], kNoTarget);
      continue;
    }
    for (const model::ContextSpan& span : model::SpansOf(c.cp, cp_rank, micro.batch, kSeq)) {
      for (int64_t i = 0; i < micro.batch * span.time; ++i) {
        const int64_t row = span.row + i;
        const auto at =
            static_cast<size_t>((sample + i / span.time) * kSeq + span.first + i % span.time);
        EXPECT_EQ(micro.tokens.i32()[row], global.tokens_BT[at]);
        EXPECT_EQ(micro.targets.i32()[row], global.targets_BT[at]);
        EXPECT_EQ(micro.positions.i32()[row], global.positions_BT[at]);
        EXPECT_EQ(micro.doc_start.i32()[row], global.doc_start_BT[at]);
        ++(*seen)[at];
      }
    }
    sample += micro.batch;
  }
  EXPECT_EQ(sample, end);
  return static_cast<int>(rank.micro_batches().size());
}

TEST(RankBatchesTest, TheRanksOfAStepReadEachTokenOfItsBatchOnce) {
  const StatusOr<TokenDataset> data = TokenDataset::Open(TinyData(), "train");
  ASSERT_TRUE(data.ok()) << data.status();
  const BatchStream stream(&*data, {.seq = kSeq, .seed = 3, .shuffle = true});
  for (const Case& c : {Case{1, 1, 5, 2}, Case{2, 1, 5, 2}, Case{3, 1, 4, 1}, Case{5, 1, 3, 4},
                        Case{1, 2, 3, 2}, Case{1, 4, 2, 1}, Case{2, 3, 7, 3}}) {
    SCOPED_TRACE(StrCat("dp ", c.dp, " cp ", c.cp, " batch ", c.batch, " by ", c.micro_batch));
    for (const int64_t first : {0, 17}) {
      Batch global;
      stream.Read(first, c.batch, &global);
      std::vector<int> seen(static_cast<size_t>(c.batch * kSeq));
      int64_t num_valid = 0;
      for (int dp = 0; dp < c.dp; ++dp) {
        for (int cp = 0; cp < c.cp; ++cp) {
          RankBatches rank(&stream, {.cp = c.cp, .dp = c.dp}, {.cp = cp, .dp = dp},
                           {.micro_batch = c.micro_batch, .seq = kSeq});
          rank.Read(first, c.batch);
          EXPECT_EQ(Mark(c, rank, cp, first, global, &seen),
                    NumMicroBatches(c.batch, c.dp, c.micro_batch));
          if (cp == 0) num_valid += rank.num_valid();
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
      EXPECT_EQ(num_valid, global.num_valid);
    }
  }
}

TEST(RankBatchesTest, SharesDifferByOneSequenceAtMost) {
  for (int64_t batch = 1; batch < 20; ++batch) {
    for (int dp = 1; dp < 9; ++dp) {
      int64_t next = 100;
      for (int rank = 0; rank < dp; ++rank) {
        const SampleRange share = ShareOfBatch(100, batch, dp, rank);
        EXPECT_EQ(share.first, next);
        EXPECT_TRUE(share.count == batch / dp || share.count == batch / dp + 1);
        next += share.count;
      }
      EXPECT_EQ(next, 100 + batch);
    }
  }
}

}  // namespace
}  // namespace cria::trainer
