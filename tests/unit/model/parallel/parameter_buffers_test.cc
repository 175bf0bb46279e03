// Each rank adds small whole numbers to its gradients, so that every sum is exact and the result of
// a step has one right value in each layout, to the bit.

#include "model/parallel/parameter_buffers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/str.h"
#include "model/cpu/cpu_ops.h"
#include "tests/support/comm_ranks.h"
#include "tests/unit/model/parallel/every_rank.h"

namespace cria::model {
namespace {

constexpr int kMicroBatches = 2;
constexpr uint64_t kSeed = 7;

// Small, or with blocks that have several rows of 4096 elements.
LlamaConfig Config(bool tied, bool large = false) {
  return {.layers = large ? 1 : 3,
          .dim = large ? 64 : 8,
          .heads = 4,
          .kv_heads = 2,
          .ffn = large ? 100 : 12,
          .vocab = large ? 301 : 11,
          .max_positions = 32,
          .rope_scaling = {},
          .tied_head = tied};
}

struct Case {
  Layout layout = {};
  bool tied = false;
  DType compute_type = DType::kF32;
  bool fixed_point = false;
  bool large = false;
};

// What a rank adds to an element in a micro-batch, and in a step.
float Contribution(int rank, int micro_batch, int step, int64_t index, int64_t element) {
  return static_cast<float>((rank * 5 + micro_batch * 3 + step + index * 7 + element) % 16 - 7);
}

float Sum(const EveryRank& everybody, const Parameter& p, int64_t element, int step) {
  float sum = 0;
  for (const int rank : everybody.Holders(p, element)) {
    for (int m = 0; m < kMicroBatches; ++m) sum += Contribution(rank, m, step, p.index, element);
  }
  return sum;
}

// One rank's training: gradients as above, updates of 1/64 of them.
class Rank {
 public:
  Rank(const Case& c, comm::Communicator* world)
      : config_(Config(c.tied, c.large)),
        rank_(world->rank()),
        everybody_(c.layout, config_),
        groups_(*MakeGroups(c.layout, config_, world)),
        buffers_(ParameterLayout(config_, SliceOf(c.layout, config_, rank_)),
                 {.compute_type = c.compute_type, .fixed_point = c.fixed_point}, &groups_,
                 ops_.get()) {
    buffers_.Initialize(kSeed);
    expected_.resize(static_cast<size_t>(layout().num_elements()));
    InitializeParameters(layout(), kSeed,
                         Tensor(expected_.data(), DType::kF32, {layout().num_elements()}));
  }

  const ParameterLayout& layout() const { return buffers_.layout(); }

  void Step(int step) {
    buffers_.ZeroGradients();
    for (int m = 0; m < kMicroBatches; ++m) {
      ExpectWeights(/*forward=*/true);
      BackwardPass(step, m);
    }
    const Status finished = buffers_.FinishGradients();
    ASSERT_TRUE(finished.ok()) << Message(finished);
    ExpectGradients(step);
    for (int b = 0; b <= layout().norms_block(); ++b) {
      const Tensor weights = buffers_.UpdatedWeights(b), gradients = buffers_.UpdatedGradients(b);
      for (int64_t i = 0; i < weights.num_elements(); ++i) {
        weights.f32()[i] -= gradients.f32()[i] / 64;
      }
    }
    for (const Parameter& p : layout().parameters()) {
      for (int64_t i = 0; i < p.num_elements(); ++i) {
        expected_[static_cast<size_t>(p.offset + i)] -=
            Sum(everybody_, p, LogicalElement(p, i), step) / 64;
      }
    }
    const Status gathered = buffers_.GatherWeights();
    ASSERT_TRUE(gathered.ok()) << Message(gathered);
    ExpectWeights(/*forward=*/false);
  }

  // All weights of this rank, asked for as a model does, are the expected ones.
  void ExpectWeights(bool forward) {
    const int num_blocks = layout().norms_block();
    for (int i = 0; i < num_blocks; ++i) {
      const int b = forward ? i : num_blocks - 1 - i;
      const StatusOr<Tensor> weights = buffers_.Weights(b);
      ASSERT_TRUE(weights.ok()) << Message(weights.status());
      const int next = forward ? b + 1 : b - 1;
      buffers_.Prefetch(next < num_blocks ? next : -1);
      ExpectBlock(*weights, b);
    }
    if (layout().embedding_block() >= 0) {
      const StatusOr<Tensor> table = buffers_.EmbeddingTable();
      ASSERT_TRUE(table.ok()) << Message(table.status());
      EXPECT_EQ(table->dtype(), DType::kF32);
      ExpectBlock(*table, layout().embedding_block());
    }
    ExpectBlock(buffers_.Norms(), layout().norms_block());
  }

 private:
  const ParameterBlock& BlockOf(int b) const { return layout().blocks()[static_cast<size_t>(b)]; }

  void ExpectBlock(const Tensor& values, int b) {
    const ParameterBlock& block = BlockOf(b);
    ASSERT_EQ(values.num_elements(), block.size());
    for (int64_t i = 0; i < block.size(); ++i) {
      const float want = expected_[static_cast<size_t>(block.begin + i)];
      if (values.dtype() == DType::kF32) {
        ASSERT_EQ(values.f32()[i], want) << "rank " << rank_ << " block " << b << " element " << i;
      } else {
        const uint32_t bits = uint32_t{values.bf16()[i].bits} << 16;
        float got = 0;
        std::memcpy(&got, &bits, sizeof(got));
        ASSERT_NEAR(got, want, std::fabs(want) / 256) << "block " << b << " element " << i;
      }
    }
  }

  // Blocks from the last to the first, as a backward pass meets them. A matrix that is embedding
  // and head gets its numbers in two goes.
  void BackwardPass(int step, int m) {
    const int embedding = layout().embedding_block(), head = layout().head_block();
    const bool last = m == kMicroBatches - 1;
    if (head >= 0) AddTo(head, step, m, last && head != embedding, head == embedding ? 0.5f : 1);
    for (int64_t i = layout().slice().num_layers() - 1; i >= 0; --i) {
      AddTo(layout().layer_block(i), step, m, last, 1);
    }
    if (embedding >= 0 && layout().slice().embedding) {
      AddTo(embedding, step, m, last, head == embedding ? 0.5f : 1);
    } else if (embedding >= 0) {
      AddTo(embedding, step, m, last, 0.5f);
    }
    AddTo(layout().norms_block(), step, m, last, 1);
  }

  void AddTo(int b, int step, int m, bool final, float share) {
    const StatusOr<Tensor> to = buffers_.Gradients(b);
    ASSERT_TRUE(to.ok()) << Message(to.status());
    const ParameterBlock& block = BlockOf(b);
    ASSERT_EQ(to->num_elements(), block.size());
    for (const Parameter& p : layout().parameters()) {
      if (p.offset < block.begin || p.offset >= block.end) continue;
      for (int64_t i = 0; i < p.num_elements(); ++i) {
        const float x = share * Contribution(rank_, m, step, p.index, LogicalElement(p, i));
        const int64_t at = p.offset - block.begin + i;
        if (to->dtype() == DType::kI64) {
          to->i64()[at] += std::llrint(std::ldexp(x, kGradientLog2Scale));
        } else {
          to->f32()[at] += x;
        }
      }
    }
    const Status added = buffers_.GradientsAdded(b, final);
    ASSERT_TRUE(added.ok()) << Message(added);
  }

  void ExpectGradients(int step) {
    for (const Parameter& p : layout().parameters()) {
      for (int b = 0; b <= layout().norms_block(); ++b) {
        const BlockPart& part = buffers_.parts().updated().block(b);
        const Tensor gradients = buffers_.UpdatedGradients(b);
        const int64_t end = std::min(part.end, p.offset + p.num_elements());
        for (int64_t i = std::max(part.begin, p.offset); i < end; ++i) {
          ASSERT_EQ(gradients.f32()[i - part.begin],
                    Sum(everybody_, p, LogicalElement(p, i - p.offset), step))
              << "rank " << rank_ << ": " << p.name << " element " << i - p.offset;
        }
      }
    }
  }

  const LlamaConfig config_;
  const int rank_;
  const EveryRank everybody_;
  const Groups groups_;
  const std::unique_ptr<Ops> ops_ = cpu::NewCpuOps();
  ParameterBuffers buffers_;
  std::vector<float> expected_;  // all weights of this rank
};

void RunCase(const Case& c) {
  SCOPED_TRACE(StrCat(Name(c.layout), c.tied ? " tied" : "",
                      c.compute_type == DType::kBF16 ? " bf16" : "",
                      c.fixed_point ? " fixed point" : ""));
  RunRankThreads({.ranks = c.layout.world_size()}, [&](comm::Communicator& world) {
    Rank rank(c, &world);
    rank.ExpectWeights(true);
    for (int step = 0; step < 2; ++step) rank.Step(step);
  });
}

constexpr Shard kShards[] = {Shard::kNone, Shard::kOptimizer, Shard::kGradients, Shard::kWeights};

TEST(ParameterBuffersTest, ReplicasGetTheSameSumsAndWeightsWhateverIsSharded) {
  for (const int dp : {1, 2, 3, 5}) {
    for (const Shard shard : kShards) {
      RunCase({.layout = {.dp = dp, .shard = shard}});
      RunCase({.layout = {.dp = dp, .shard = shard}, .tied = true, .compute_type = DType::kBF16});
    }
  }
}

TEST(ParameterBuffersTest, FixedPointGivesTheSameSums) {
  for (const Shard shard : kShards) {
    RunCase({.layout = {.dp = 3, .shard = shard}, .fixed_point = true});
    RunCase({.layout = {.tp = 2, .cp = 2, .shard = shard}, .tied = true, .fixed_point = true});
  }
}

TEST(ParameterBuffersTest, LargeBlocksAreSummedByAllThreads) {
  for (const Shard shard : kShards) {
    for (const bool fixed_point : {false, true}) {
      RunCase({.layout = {.dp = 2, .shard = shard}, .fixed_point = fixed_point, .large = true});
    }
  }
}

TEST(ParameterBuffersTest, NormsAndSharedHeadsAreSummedOverTheTensorParallelRanks) {
  for (const Shard shard : kShards) {
    RunCase({.layout = {.tp = 2, .cp = 2, .shard = shard}});
    RunCase({.layout = {.tp = 4, .dp = 2, .shard = shard}});  // two ranks for each kv head
  }
}

TEST(ParameterBuffersTest, ATiedHeadIsSummedOverBothStages) {
  for (const Shard shard : kShards) {
    RunCase({.layout = {.pp = 3, .dp = 2, .shard = shard}, .tied = true});
    RunCase({.layout = {.pp = 2, .dp = 2, .shard = shard}});
    RunCase({.layout = {.tp = 2, .pp = 2, .dp = 2, .shard = shard},
             .tied = true,
             .compute_type = DType::kBF16});
  }
}

TEST(ParameterBuffersTest, ShardingDividesThePlanByTheReplicas) {
  LlamaConfig config = Config(false);
  config.layers = 100;
  const ParameterLayout layout(config);
  const auto plan = [&](Shard shard) {
    return ParameterBuffers::Plan(layout, ParameterParts(layout, shard, 4, 0),
                                  {.compute_type = DType::kBF16});
  };
  const int64_t n = layout.num_elements(), norms = layout.blocks().back().size();
  const int64_t layer = layout.blocks()[1].size(), vocabulary = layout.blocks()[0].size();
  const auto near = [&](int64_t bytes, int64_t elements, int64_t width) {
    EXPECT_GE(bytes, elements * width);
    // Gaps between parts: under a cache line for each block.
    EXPECT_LE(bytes, elements * width + 64 * (static_cast<int64_t>(layout.blocks().size()) + 8));
  };
  for (const Shard shard : {Shard::kNone, Shard::kOptimizer}) {
    near(plan(shard).weights, n, 4);
    near(plan(shard).compute_copy, n, 2);
    near(plan(shard).gradients, n, 4);
  }
  const int64_t part = (n - norms) / 4 + norms;
  near(plan(Shard::kGradients).weights, n, 4);
  near(plan(Shard::kGradients).gradients, part + 2 * layer + vocabulary, 4);
  near(plan(Shard::kWeights).weights, part, 4);
  near(plan(Shard::kWeights).compute_copy, 2 * layer + 2 * vocabulary, 2);
  near(plan(Shard::kWeights).gradients, part + 2 * layer + vocabulary, 4);
}

TEST(ParameterBuffersTest, GradientsAfterTheLastAreRefused) {
  const auto ops = cpu::NewCpuOps();
  ParameterBuffers buffers(ParameterLayout(Config(false)), {.training = false}, nullptr, ops.get());
  EXPECT_DEATH((void)buffers.Gradients(0), "without gradients");
}

}  // namespace
}  // namespace cria::model
