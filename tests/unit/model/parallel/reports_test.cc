// Public bug reports about layouts as tests: faults that raised no error and left a loss that
// looked fine. Where the row is a case of other tests, they are named here.
//
//   TransformerEngine #3109 of torchtitan, #764, ao #3982    below: FP8 scales over ranks
//   pytorch #106395                                          below: sums of gradients in fp32
//   transformers #34191, torchtune #1875, nanoGPT #145       below: unequal token counts
//   Megatron-LM #2357, WrinkleFree #53                       below: documents stay apart
//   torchtitan #596, ROCm/TransformerEngine #715             AdamWParallelTest: norms
//   Megatron-LM #1446, #656                                  LayoutsTest: copies have equal bits
//   Megatron-LM #1754, NeMo Automodel #3530, torchtitan #105 LayoutsTest: vocabularies, pp, losses
//   Megatron-LM #7452                                        PlacementMistakeTest
//   transformers #48307                                      MeshTest, LayoutsTest: tp over kv
//   heads torchtitan #771                                          PipelineTest: every schedule
//   torchtitan #816, nanotron #245, Megatron-LM #6920        TrainLayoutsTest: resumed elsewhere
//   parcae #10, speculators #427, Megatron-Bridge #5944      RankBatchesTest, BatchStreamTest

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "model/parallel/mesh.h"
#include "tests/unit/model/llama/tiny_model.h"
#include "tests/unit/model/parallel/layout_trainer.h"

namespace cria::model {
namespace {

constexpr int64_t kTime = 48, kDocument = 11;

LlamaConfig Config() {
  LlamaConfig config = TinyConfig();
  config.layers = 2;
  config.dim = 48;
  config.heads = 12;
  config.kv_heads = 3;
  config.head_dim = 4;
  config.ffn = 72;
  config.vocab = 131;
  return config;
}

OwnedBatch Batch(int64_t sequences, int step) {
  return RandomBatch(Config(), sequences, kTime, static_cast<uint64_t>(40 + step), kDocument,
                     /*masked=*/6);
}

LayoutJob Job(const Layout& layout, int64_t sequences) {
  return {.layout = layout, .config = Config(), .batch_of = [sequences](int step) {
            return Batch(sequences, step);
          }};
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, double bound) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(std::abs(got[i] / want[i] - 1), bound) << "step " << i;
  }
}

// With scales of a rank's own view, norms went to 105, 572 and NaN within three steps.
TEST(LayoutReportsTest, Fp8WithTensorParallelismFollowsOneRank) {
  for (const Precision precision :
       {Precision::kFp8Tensorwise, Precision::kFp8Delayed, Precision::kFp8Rowwise}) {
    for (const int tp : {3, 12}) {
      SCOPED_TRACE(testing::Message() << PrecisionName(precision) << " tp " << tp);
      LayoutJob job = Job({.tp = tp}, 2);
      job.precision = precision;
      job.steps = 10;
      const LayoutOutcome want = TrainAlone(job), got = TrainOnRanks(job);
      ExpectNear(got.losses, want.losses, 1e-2);
      ExpectNear(got.norms, want.norms, 5e-2);
    }
  }
}

// Ranks that no dimension is a multiple of, and more ranks than some parts have numbers.
TEST(LayoutReportsTest, Fp8GathersOfUnevenPartsGiveTheSameBits) {
  for (const int dp : {3, 5, 7}) {
    SCOPED_TRACE(dp);
    LayoutJob job = Job({.dp = dp, .shard = Shard::kWeights}, dp);
    job.precision = Precision::kFp8Tensorwise;
    const LayoutOutcome want = TrainOnRanks(job);
    job.fp8_gather = true;
    const LayoutOutcome got = TrainOnRanks(job);
    EXPECT_EQ(got.norms, want.norms);
    EXPECT_EQ(got.weights, want.weights);
  }
}

// Sums in bf16 were stable on 96 ranks and not on 384. Here a rank adds up in fp32 whatever the
// precision, so that more ranks are no further from one: in bf16 two gradients of equal size would
// already differ by 4e-3.
TEST(LayoutReportsTest, MoreRanksSumGradientsNoWorse) {
  constexpr int64_t kSequences = 8;
  LayoutJob job = Job({}, kSequences);
  job.precision = Precision::kBf16;
  job.steps = 1;
  const LayoutOutcome want = TrainAlone(job);
  for (const int dp : {2, 4, 8}) {
    for (const Shard shard : {Shard::kNone, Shard::kGradients}) {
      job.layout = {.dp = dp, .shard = shard};
      const LayoutOutcome got = TrainOnRanks(job);
      ExpectNear(got.losses, want.losses, 1e-7);
      ExpectNear(got.norms, want.norms, 1e-6);
    }
  }
}

// Mean of means is not the mean: one rank has a sixth of the others' targets, one has none at all.
TEST(LayoutReportsTest, RanksCountByTheirTokens) {
  LayoutJob job = Job({.dp = 4, .shard = Shard::kOptimizer}, 4);
  job.batch_of = [](int step) {
    OwnedBatch batch = Batch(4, step);
    for (int64_t t = 0; t < kTime; ++t) {
      batch.targets[static_cast<size_t>(1 * kTime + t)] = -100;
      if (t % 6 != 0) batch.targets[static_cast<size_t>(2 * kTime + t)] = -100;
    }
    return batch;
  };
  const LayoutOutcome want = TrainAlone(job), got = TrainOnRanks(job);
  ExpectNear(got.losses, want.losses, 1e-6);
  ExpectNear(got.norms, want.norms, 1e-6);
  EXPECT_LE(Difference(got.weights, want.weights), 1e-6);
}

// Only every second document has targets; the tokens of the others are changed. Nothing of them may
// reach the loss or a gradient, wherever the ranks' chunks are cut.
TEST(LayoutReportsTest, ADocumentsTokensReachNoOther) {
  const auto batch_of = [](uint64_t others) {
    return [others](int step) {
      OwnedBatch batch = Batch(2, step);
      const Rng rng(others, 0);
      for (size_t i = 0; i < batch.tokens.size(); ++i) {
        if (static_cast<int64_t>(i) % kTime / kDocument % 2 != 0) continue;
        batch.tokens[i] = static_cast<int32_t>(rng.Below(i, 131));
        batch.targets[i] = -100;
      }
      return batch;
    };
  };
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const Layout& layout : {Layout{.cp = 2}, Layout{.cp = 4}, Layout{.tp = 3},
                                 Layout{.tp = 3, .cp = 2}, Layout{.cp = 2, .pp = 2}}) {
      SCOPED_TRACE(testing::Message() << Name(layout) << " " << PrecisionName(precision));
      LayoutJob job = Job(layout, 2);
      job.precision = precision;
      job.batch_of = batch_of(1);
      const LayoutOutcome want = TrainOnRanks(job);
      job.batch_of = batch_of(2);
      const LayoutOutcome got = TrainOnRanks(job);
      EXPECT_EQ(got.losses, want.losses);
      EXPECT_EQ(got.norms, want.norms);
      EXPECT_EQ(got.weights, want.weights);
    }
  }
}

}  // namespace
}  // namespace cria::model
