// AdamW and the gradient norm over ranks against one rank, to the bit. The gradients that ranks add
// up to are the same in each layout.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "base/str.h"
#include "model/cpu/cpu_ops.h"
#include "model/parallel/groups.h"
#include "tests/support/comm_ranks.h"
#include "tests/unit/model/parallel/every_rank.h"
#include "trainer/optimizer/adamw.h"

namespace cria::trainer {
namespace {

using model::EveryRank;
using model::Layout;
using model::Shard;

constexpr int kSteps = 3;

model::LlamaConfig Config(bool tied) {
  return {.layers = 3,
          .dim = 8,
          .heads = 4,
          .kv_heads = 2,
          .ffn = 12,
          .vocab = 11,
          .max_positions = 32,
          .rope_scaling = {},
          .tied_head = tied};
}

// What a job has come to: all weights by parameter and element, the norms by step.
struct Outcome {
  std::map<std::pair<int64_t, int64_t>, float> weights;
  std::vector<double> norms;
};

struct Case {
  Layout layout = {};
  bool tied = false;
  bool fixed_point = false;
};

// The gradient of an element in multiples of 2^-20: whole numbers of at most 10 bits, whose squares
// add up exactly in double, or numbers of all sizes.
int64_t GradientBits(const Case& c, int step, int64_t index, int64_t element) {
  const Rng rng(static_cast<uint64_t>(step), StreamOf(StrCat("gradient ", index)));
  const auto random = static_cast<int64_t>(rng.Below(static_cast<uint64_t>(element), 1 << 20));
  if (!c.fixed_point) return random % 1024 << 10;
  return random >> (element % 17);
}

class Rank {
 public:
  Rank(const Case& c, comm::Communicator* world)
      : case_(c),
        config_(Config(c.tied)),
        rank_(world->rank()),
        everybody_(c.layout, config_),
        groups_(*model::MakeGroups(c.layout, config_, world)),
        buffers_(model::ParameterLayout(config_, SliceOf(c.layout, config_, rank_)),
                 {.fixed_point = c.fixed_point}, &groups_, ops_.get()),
        optimizer_(&buffers_, {.clip_norm = 0.5}, ops_.get()) {
    buffers_.Initialize(7);
  }

  model::ParameterBuffers& buffers() { return buffers_; }
  AdamW& optimizer() { return optimizer_; }

  // Adds to an element's gradient: the first of those that hold it makes up for the others.
  void AddGradients(int step) {
    buffers_.ZeroGradients();
    for (int b = buffers_.layout().norms_block(); b >= 0; --b) {
      const StatusOr<model::Tensor> to = buffers_.Gradients(b);
      ASSERT_TRUE(to.ok()) << Message(to.status());
      const model::ParameterBlock& block = buffers_.layout().blocks()[static_cast<size_t>(b)];
      for (const model::Parameter& p : buffers_.layout().parameters()) {
        if (p.offset < block.begin || p.offset >= block.end) continue;
        for (int64_t i = 0; i < p.num_elements(); ++i) {
          Add(*to, p.offset - block.begin + i, Share(step, p, LogicalElement(p, i)));
        }
      }
      const Status added = buffers_.GradientsAdded(b, true);
      ASSERT_TRUE(added.ok()) << Message(added);
    }
  }

  double Step(int step) {
    AddGradients(step);
    EXPECT_TRUE(buffers_.FinishGradients().ok());
    const StatusOr<GradientNorm> norm = optimizer_.Norm();
    EXPECT_TRUE(norm.ok() && norm->finite()) << Message(norm.status());
    optimizer_.Step(0.01, norm->value);
    EXPECT_TRUE(buffers_.GatherWeights().ok());
    return norm->value;
  }

  // All weights of the rank, by parameter and element.
  void Collect(Outcome* outcome) {
    for (int b = 0; b <= buffers_.layout().norms_block(); ++b) {
      const bool norms = b == buffers_.layout().norms_block();
      const model::Tensor values = norms ? buffers_.Norms() : *buffers_.Weights(b);
      const model::ParameterBlock& block = buffers_.layout().blocks()[static_cast<size_t>(b)];
      for (const model::Parameter& p : buffers_.layout().parameters()) {
        if (p.offset < block.begin || p.offset >= block.end) continue;
        for (int64_t i = 0; i < p.num_elements(); ++i) {
          const auto [at, is_new] = outcome->weights.try_emplace(
              {p.index, LogicalElement(p, i)}, values.f32()[p.offset - block.begin + i]);
          EXPECT_EQ(at->second, values.f32()[p.offset - block.begin + i])
              << "replicas of " << p.name << " differ";
        }
      }
    }
  }

 private:
  int64_t Share(int step, const model::Parameter& p, int64_t element) const {
    const std::vector<int> holders = everybody_.Holders(p, element);
    constexpr int64_t kOthers = int64_t{3} << 10;
    if (rank_ != holders.front()) return kOthers;
    return GradientBits(case_, step, p.index, element) -
           kOthers * (static_cast<int64_t>(holders.size()) - 1);
  }

  static void Add(const model::Tensor& to, int64_t at, int64_t bits) {
    if (to.dtype() == model::DType::kI64) {
      to.i64()[at] += bits << (model::kGradientLog2Scale - 20);
    } else {
      to.f32()[at] += std::ldexp(static_cast<float>(bits), -20);
    }
  }

  const Case case_;
  const model::LlamaConfig config_;
  const int rank_;
  const EveryRank everybody_;
  const model::Groups groups_;
  const std::unique_ptr<model::Ops> ops_ = model::cpu::NewCpuOps();
  model::ParameterBuffers buffers_;
  AdamW optimizer_;
};

Outcome RunJob(const Case& c) {
  Outcome outcome;
  std::mutex mu;
  RunRankThreads({.ranks = c.layout.world_size()}, [&](comm::Communicator& world) {
    Rank rank(c, &world);
    std::vector<double> norms;
    for (int step = 1; step <= kSteps; ++step) norms.push_back(rank.Step(step));
    Outcome mine;
    rank.Collect(&mine);
    const std::lock_guard lock(mu);
    if (outcome.norms.empty()) outcome.norms = norms;
    EXPECT_EQ(norms, outcome.norms) << "rank " << world.rank() << " has another norm";
    for (const auto& [key, value] : mine.weights) {
      const auto [at, is_new] = outcome.weights.try_emplace(key, value);
      EXPECT_EQ(at->second, value) << "rank " << world.rank() << " has other weights";
    }
  });
  return outcome;
}

void ExpectSame(const Outcome& got, const Outcome& want, const Case& c) {
  SCOPED_TRACE(StrCat(Name(c.layout), c.tied ? " tied" : ""));
  EXPECT_EQ(got.norms, want.norms);
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (const auto& [key, value] : want.weights) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got.weights.at(key)), std::bit_cast<uint32_t>(value))
        << "parameter " << key.first << " element " << key.second;
  }
}

constexpr Shard kShards[] = {Shard::kNone, Shard::kOptimizer, Shard::kGradients, Shard::kWeights};

TEST(AdamWParallelTest, EveryKindOfShardingDoesWhatOneRankDoes) {
  const Outcome want = RunJob({});
  ASSERT_GT(want.norms[0], 0.5);  // clipping is at work
  for (const int dp : {2, 3, 5}) {
    for (const Shard shard : kShards) {
      const Case c = {.layout = {.dp = dp, .shard = shard}};
      ExpectSame(RunJob(c), want, c);
    }
  }
}

// Parameters in several places, each counted once.
TEST(AdamWParallelTest, TheNormCountsEachElementOnceInEveryLayout) {
  for (const bool tied : {false, true}) {
    const Outcome want = RunJob({.tied = tied});
    for (const Layout& layout :
         {Layout{.tp = 2}, Layout{.tp = 4, .dp = 2}, Layout{.cp = 2, .dp = 2}, Layout{.pp = 3},
          Layout{.tp = 2, .pp = 2, .dp = 2}}) {
      for (const Shard shard : {Shard::kNone, Shard::kWeights}) {
        Case c = {.layout = layout, .tied = tied};
        c.layout.shard = shard;
        ExpectSame(RunJob(c), want, c);
      }
    }
  }
}

// Squares of all sizes, whose sum in floating point depends on the order.
TEST(AdamWParallelTest, FixedPointHasTheSameNormInEveryLayout) {
  const Outcome want = RunJob({.tied = true, .fixed_point = true});
  for (const Layout& layout :
       {Layout{.dp = 3}, Layout{.tp = 4}, Layout{.cp = 2, .dp = 2}, Layout{.pp = 3, .dp = 2}}) {
    for (const Shard shard : kShards) {
      Case c = {.layout = layout, .tied = true, .fixed_point = true};
      c.layout.shard = shard;
      ExpectSame(RunJob(c), want, c);
    }
  }
}

TEST(AdamWParallelTest, FixedPointHasTheNormOfTheGradients) {
  RunRankThreads({.ranks = 2}, [&](comm::Communicator& world) {
    Rank rank({.layout = {.dp = 2, .shard = Shard::kGradients}, .fixed_point = true}, &world);
    rank.AddGradients(1);
    ASSERT_TRUE(rank.buffers().FinishGradients().ok());
    double squares = 0;
    for (const model::Parameter& p : rank.buffers().layout().parameters()) {
      for (int64_t i = 0; i < p.num_elements(); ++i) {
        const double g = std::ldexp(
            static_cast<double>(GradientBits({.fixed_point = true}, 1, p.index, i)), -20);
        squares += g * g;
      }
    }
    const StatusOr<GradientNorm> norm = rank.optimizer().Norm();
    ASSERT_TRUE(norm.ok());
    EXPECT_NEAR(norm->value / std::sqrt(squares), 1, 1e-12);
  });
}

// The name is known to all ranks, also to those that don't hold the parameter.
TEST(AdamWParallelTest, AllRanksNameTheFirstParameterThatIsNotFinite) {
  const Case c = {.layout = {.pp = 2, .dp = 2, .shard = Shard::kOptimizer}};
  RunRankThreads({.ranks = 4}, [&](comm::Communicator& world) {
    Rank rank(c, &world);
    rank.AddGradients(1);
    ASSERT_TRUE(rank.buffers().FinishGradients().ok());
    for (const char* name : {"model.layers.2.mlp.down_proj.weight",
                             "model.layers.1.mlp.up_proj."
                             "weight"}) {
      const model::Parameter* p = rank.buffers().layout().Find(name);
      for (int b = 0; p != nullptr && b < rank.buffers().layout().norms_block(); ++b) {
        const model::BlockPart& part = rank.buffers().parts().updated().block(b);
        const int64_t last = p->offset + p->num_elements() - 1;
        if (last < part.begin || last >= part.end) continue;
        rank.buffers().UpdatedGradients(b).f32()[last - part.begin] =
            std::numeric_limits<float>::quiet_NaN();
      }
      const StatusOr<GradientNorm> norm = rank.optimizer().Norm();
      ASSERT_TRUE(norm.ok()) << Message(norm.status());
      EXPECT_EQ(norm->first_non_finite, name) << "rank " << world.rank();
      EXPECT_FALSE(std::isfinite(norm->value));
    }
  });
}

}  // namespace
}  // namespace cria::trainer
