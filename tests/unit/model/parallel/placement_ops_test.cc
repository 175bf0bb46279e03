// What placements let through, and that each mistake stops with both placements named.

#include "model/parallel/placement_ops.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "comm/api/communicator.h"
#include "model/cpu/cpu_ops.h"
#include "model/parallel/row_split.h"
#include "model/placement.h"
#include "tests/support/comm_ranks.h"

namespace cria::model {
namespace {

constexpr Placement kReplicate = Placement::kReplicate;
constexpr Placement kShard0 = Placement::kShard0;
constexpr Placement kShard1 = Placement::kShard1;
constexpr Placement kPartial = Placement::kPartial;

// Tensors of ones and their memory.
class Memory {
 public:
  Tensor Make(std::initializer_list<int64_t> dims, Placement placement) {
    const Tensor shape(nullptr, DType::kF32, dims);
    floats_.emplace_back(static_cast<size_t>(shape.num_elements()), 1.0f);
    return Tensor(floats_.back().data(), DType::kF32, dims).Placed(placement);
  }
  Tensor Integers(std::initializer_list<int64_t> dims) {
    const Tensor shape(nullptr, DType::kI32, dims);
    integers_.emplace_back(static_cast<size_t>(shape.num_elements()), 0);
    return Tensor(integers_.back().data(), DType::kI32, dims);
  }
  Tensor Fixed(std::initializer_list<int64_t> dims, Placement placement) {
    const Tensor shape(nullptr, DType::kI64, dims);
    fixed_.emplace_back(static_cast<size_t>(shape.num_elements()), 0);
    return Tensor(fixed_.back().data(), DType::kI64, dims).Placed(placement);
  }

 private:
  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<int32_t>> integers_;
  std::vector<std::vector<int64_t>> fixed_;
};

class PlacementOpsTest : public testing::Test {
 protected:
  Tensor At(Placement placement) { return memory_.Make({4, 4}, placement); }
  Tensor Row(Placement placement) { return memory_.Make({4}, placement); }

  Memory memory_;
  std::unique_ptr<Ops> cpu_ = cpu::NewCpuOps();
  PlacementOps ops_{cpu_.get()};
};

TEST(PlacementTest, GoesWithViewsAndHasAName) {
  Memory memory;
  const Tensor x = memory.Make({4, 6}, kShard1);
  EXPECT_EQ(memory.Make({4, 6}, kReplicate).placement(), kReplicate);
  EXPECT_EQ(x.Rows(1, 2).placement(), kShard1);
  EXPECT_EQ(x.Columns(1, 2).placement(), kShard1);
  EXPECT_EQ(x.View({24}).placement(), kShard1);
  EXPECT_EQ(x.Prefix({2, 2}).placement(), kShard1);
  EXPECT_EQ(x.Placed(kPartial).placement(), kPartial);
  EXPECT_STREQ(PlacementName(kReplicate), "replicate");
  EXPECT_STREQ(PlacementName(kPartial), "partial");
}

// All pairs of operands, each in all four transpositions: what fits gives a product of one
// placement, named here by the sides of the product.
TEST_F(PlacementOpsTest, ProductsFollowTheInnerSide) {
  struct Rule {
    Placement a, b, c;  // of op(a) and op(b)
  };
  const std::vector<Rule> rules = {{kReplicate, kReplicate, kReplicate},
                                   {kReplicate, kShard1, kShard1},
                                   {kShard0, kReplicate, kShard0},
                                   {kShard1, kShard0, kPartial}};
  const auto turned = [](Placement p, bool transpose) {
    if (!transpose || p == kReplicate) return p;
    return p == kShard0 ? kShard1 : kShard0;
  };
  for (const Rule& rule : rules) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        ops_.Matmul({.a = At(turned(rule.a, transpose_a)),
                     .b = At(turned(rule.b, transpose_b)),
                     .c = At(rule.c),
                     .transpose_a = transpose_a,
                     .transpose_b = transpose_b});
      }
    }
  }
}

TEST_F(PlacementOpsTest, ProductsOfWrongOperandsStop) {
  const auto matmul = [&](Placement a, Placement b, Placement c, bool transpose_b) {
    ops_.Matmul({.a = At(a), .b = At(b), .c = At(c), .transpose_b = transpose_b});
  };
  EXPECT_DEATH(matmul(kShard1, kShard0, kPartial, true),
               "matmul: b is shard\\(0\\), with a shard\\(1\\) it needs shard\\(1\\)");
  EXPECT_DEATH(matmul(kShard1, kReplicate, kPartial, false),
               "matmul: b is replicate, with a shard\\(1\\) it needs shard\\(0\\)");
  EXPECT_DEATH(matmul(kReplicate, kShard0, kReplicate, false),
               "matmul: b is shard\\(0\\), with a replicate it needs replicate");
  EXPECT_DEATH(matmul(kShard0, kShard1, kShard0, false),
               "matmul: b is shard\\(1\\), with a shard\\(0\\) it needs replicate");
  EXPECT_DEATH(matmul(kPartial, kReplicate, kPartial, false),
               "matmul: a is partial, needs replicate or shard\\(0\\) or shard\\(1\\)");
  EXPECT_DEATH(matmul(kReplicate, kPartial, kPartial, false), "matmul: b is partial");
  EXPECT_DEATH(matmul(kShard1, kShard0, kReplicate, false),
               "matmul: c is replicate, of a shard\\(1\\) and b shard\\(0\\) it is partial");
}

TEST_F(PlacementOpsTest, NormsStop) {
  const auto forward = [&](Placement x, Placement delta, Placement y) {
    ops_.RmsNormForward({.x = At(x),
                         .delta = At(delta),
                         .sum = At(x),
                         .weight = Row(kReplicate),
                         .y = At(y),
                         .rstd = Row(x)});
  };
  forward(kShard0, kShard0, kShard0);
  forward(kReplicate, kReplicate, kReplicate);
  EXPECT_DEATH(forward(kShard0, kPartial, kShard0), "delta is partial, x is shard\\(0\\)");
  EXPECT_DEATH(forward(kShard0, kShard0, kReplicate), "y is replicate, x is shard\\(0\\)");
  EXPECT_DEATH(forward(kPartial, kPartial, kPartial),
               "rms_norm: x is partial, needs replicate or shard\\(0\\)");
  EXPECT_DEATH(forward(kShard1, kShard1, kShard1), "x is shard\\(1\\), needs replicate");
  const auto backward = [&](Placement rows, Placement dy, Placement dweight) {
    ops_.RmsNormBackward({.dy = At(dy),
                          .x = At(rows),
                          .weight = Row(kReplicate),
                          .rstd = Row(rows),
                          .dx = At(rows),
                          .dweight = Row(dweight)});
  };
  backward(kShard0, kShard0, kPartial);
  backward(kReplicate, kReplicate, kReplicate);
  EXPECT_DEATH(backward(kShard0, kPartial, kPartial), "dy is partial, x is shard\\(0\\)");
  EXPECT_DEATH(backward(kShard0, kShard0, kReplicate), "dweight is replicate, needs partial");
}

TEST_F(PlacementOpsTest, HeadsAndChannelsStop) {
  const auto rope = [&](Placement x) {
    ops_.Rope({.x = At(x),
               .positions = memory_.Integers({4}),
               .cosines = memory_.Make({4, 2}, kReplicate),
               .sines = memory_.Make({4, 2}, kReplicate),
               .head_dim = 4});
  };
  rope(kShard1);
  EXPECT_DEATH(rope(kShard0), "rope: x is shard\\(0\\), needs replicate or shard\\(1\\)");
  EXPECT_DEATH(rope(kPartial), "rope: x is partial");
  const auto attention = [&](Placement q, Placement k, Placement v, Placement out) {
    return AttentionForwardArgs{.q = At(q),
                                .k = At(k),
                                .v = At(v),
                                .doc_start = memory_.Integers({4}),
                                .out = At(out),
                                .lse = Row(kReplicate),
                                .batch = 1,
                                .time = 4,
                                .heads = 1,
                                .kv_heads = 1,
                                .head_dim = 4,
                                .scale = 0.5f};
  };
  const AttentionForwardArgs good = attention(kShard1, kShard1, kShard1, kShard1);
  ops_.AttentionForward(good);
  EXPECT_DEATH(ops_.AttentionForward(attention(kShard1, kReplicate, kShard1, kShard1)),
               "attention: k is replicate, q is shard\\(1\\)");
  EXPECT_DEATH(ops_.AttentionForward(attention(kShard1, kShard1, kPartial, kShard1)),
               "attention: v is partial");
  EXPECT_DEATH(ops_.AttentionForward(attention(kShard1, kShard1, kShard1, kReplicate)),
               "attention: out is replicate");
  EXPECT_DEATH(ops_.AttentionForward(attention(kShard0, kShard0, kShard0, kShard0)),
               "attention: q is shard\\(0\\)");
  const auto backward = [&](Placement dout, Placement dk) {
    ops_.AttentionBackward(
        {.forward = good, .dout = At(dout), .dq = At(kShard1), .dk = At(dk), .dv = At(kShard1)});
  };
  backward(kShard1, kShard1);
  EXPECT_DEATH(backward(kPartial, kShard1), "dout is partial, q is shard\\(1\\)");
  EXPECT_DEATH(backward(kShard1, kPartial), "dk is partial, q is shard\\(1\\)");
  const auto swiglu = [&](Placement gate_up, Placement act) {
    ops_.SwigluForward({.gate_up = memory_.Make({4, 8}, gate_up), .act = At(act)});
  };
  swiglu(kShard1, kShard1);
  EXPECT_DEATH(swiglu(kPartial, kPartial), "swiglu: gate_up is partial");
  EXPECT_DEATH(swiglu(kShard1, kReplicate), "act is replicate, gate_up is shard\\(1\\)");
  const auto swiglu_backward = [&](Placement dact) {
    const Tensor gate_up = memory_.Make({4, 8}, kShard1);
    ops_.SwigluBackward({.gate_up = gate_up, .dact = At(dact), .dgate_up = gate_up});
  };
  swiglu_backward(kShard1);
  EXPECT_DEATH(swiglu_backward(kPartial), "dact is partial, gate_up is shard\\(1\\)");
}

TEST_F(PlacementOpsTest, VocabulariesStop) {
  const auto embed = [&](Placement table, Placement out) {
    ops_.EmbeddingForward({.tokens = memory_.Integers({4}), .table = At(table), .out = At(out)});
  };
  embed(kShard0, kPartial);
  embed(kReplicate, kReplicate);
  EXPECT_DEATH(embed(kShard0, kReplicate), "embedding: out is replicate, needs partial");
  EXPECT_DEATH(embed(kReplicate, kPartial), "embedding: out is partial, needs replicate");
  const auto embed_backward = [&](Placement dout) {
    ops_.EmbeddingBackward(
        {.tokens = memory_.Integers({4}), .dout = At(dout), .dtable = At(kShard0)});
  };
  embed_backward(kReplicate);
  EXPECT_DEATH(embed_backward(kShard0), "dout is shard\\(0\\), needs replicate");

  const auto entropy = [&](Placement logits) {
    ops_.CrossEntropy(
        {.logits = At(logits), .targets = memory_.Integers({4}), .losses = Row(kReplicate)});
  };
  entropy(kReplicate);
  EXPECT_DEATH(entropy(kShard1), "cross_entropy: logits is shard\\(1\\), needs replicate");
  const auto stats = [&](Placement logits, Placement sum) {
    ops_.LogitStats({.logits = At(logits),
                     .targets = memory_.Integers({4}),
                     .max = Row(kPartial),
                     .sum = Row(sum),
                     .target_logit = Row(kPartial)});
  };
  stats(kShard1, kPartial);
  EXPECT_DEATH(stats(kReplicate, kPartial), "logit_stats: logits is replicate, needs shard\\(1\\)");
  EXPECT_DEATH(stats(kShard1, kReplicate), "sum is replicate, needs partial");
  const auto gradient = [&](Placement logits, Placement lse) {
    ops_.LogitGradient({.logits = At(logits),
                        .targets = memory_.Integers({4}),
                        .lse = Row(lse),
                        .dlogits = At(kShard1)});
  };
  gradient(kShard1, kReplicate);
  EXPECT_DEATH(gradient(kReplicate, kReplicate), "logits is replicate, needs shard\\(1\\)");
  EXPECT_DEATH(gradient(kShard1, kPartial), "lse is partial, needs replicate");
}

TEST_F(PlacementOpsTest, SumsKeepTheirPlacement) {
  const auto add = [&](Placement a, Placement b) {
    ops_.Add({.a = At(a), .b = At(b), .out = At(a)});
  };
  add(kPartial, kPartial);
  EXPECT_DEATH(add(kShard0, kPartial), "add: b is partial, a is shard\\(0\\)");
  ops_.Copy(At(kShard0), At(kShard0));
  EXPECT_DEATH(ops_.Copy(At(kPartial), At(kShard0)), "copy: to is shard\\(0\\), from is partial");
  const auto add_fixed = [&](Placement to) {
    ops_.AddFixed({.from = At(kPartial), .to = memory_.Fixed({4, 4}, to), .log2_scale = 20});
  };
  add_fixed(kPartial);
  EXPECT_DEATH(add_fixed(kReplicate), "add_fixed: to is replicate, from is partial");
  const auto to_float = [&](Placement from) {
    ops_.FixedToFloat({.from = memory_.Fixed({4, 4}, from), .to = At(kShard0), .log2_scale = 20});
  };
  to_float(kShard0);
  EXPECT_DEATH(to_float(kPartial), "fixed_to_float: to is shard\\(0\\), from is partial");
  const QuantizeSpec spec = {};
  EXPECT_DEATH(ops_.Quantize({.spec = spec, .from = At(kPartial), .to = At(kPartial)}),
               "quantize: from is partial");
  EXPECT_DEATH(ops_.Quantize({.spec = spec, .from = At(kShard0), .to = At(kReplicate)}),
               "quantize: to is replicate, from is shard\\(0\\)");
  EXPECT_DEATH(ops_.Amax({.from = At(kPartial), .amax = Row(kReplicate)}), "amax: from is partial");
}

// ---- a layer of two ranks, right and with each mistake ----

enum class Mistake {
  kNone,
  kNoGather,        // a product reads rows that only one rank has
  kNoSum,           // the residual gets a rank's own part
  kGatherPartial,   // a part of a sum is gathered
  kSumTwice,        // what is summed is summed again
  kGatheredLogits,  // all classes go into the softmax of a part
  kWholeLoss,       // a part of the classes goes into the softmax of all
};

Status RunMlp(const Mistake mistake, comm::Communicator& world) {
  const std::unique_ptr<Ops> cpu = cpu::NewCpuOps();
  PlacementOps ops(cpu.get());
  const RowSplit split(&world);
  Memory memory;
  const Tensor x = memory.Make({2, 4}, kShard0), delta = memory.Make({2, 4}, kShard0);
  const Tensor normed = memory.Make({4, 4}, kShard0), partial = memory.Make({4, 4}, kPartial);
  const Tensor gate_up = memory.Make({4, 8}, kShard1), act = memory.Make({4, 4}, kShard1);
  RmsNormForwardArgs norm = {.x = x,
                             .weight = memory.Make({4}, kReplicate),
                             .y = split.Own(normed),
                             .rstd = memory.Make({2}, kShard0)};
  ops.RmsNormForward(norm);
  Tensor all = normed;
  if (mistake != Mistake::kNoGather) {
    CRIA_ASSIGN_OR_RETURN(all, split.Gather(normed));
  }
  ops.Matmul({.a = all, .b = memory.Make({8, 4}, kShard0), .c = gate_up, .transpose_b = true});
  ops.SwigluForward({.gate_up = gate_up, .act = act});
  ops.Matmul({.a = act, .b = memory.Make({4, 4}, kShard1), .c = partial, .transpose_b = true});
  if (mistake == Mistake::kGatherPartial) return split.Gather(partial).status();
  CRIA_RETURN_IF_ERROR(split.SumAndScatter(partial, delta));
  if (mistake == Mistake::kSumTwice) return split.SumAndScatter(all, delta);
  norm.delta = mistake == Mistake::kNoSum ? partial.Rows(0, 2) : delta;
  norm.sum = x;
  ops.RmsNormForward(norm);
  CRIA_ASSIGN_OR_RETURN(all, split.Gather(normed));
  const bool gathered = mistake == Mistake::kGatheredLogits;
  const Tensor logits = memory.Make({4, 6}, gathered ? kReplicate : kShard1);
  ops.Matmul({.a = all,
              .b = memory.Make({6, 4}, gathered ? kReplicate : kShard0),
              .c = logits,
              .transpose_b = true});
  const Tensor targets = memory.Integers({4}), rows = memory.Make({4}, kReplicate);
  if (mistake == Mistake::kWholeLoss) {
    ops.CrossEntropy({.logits = logits, .targets = targets, .losses = rows});
  }
  ops.LogitStats({.logits = logits,
                  .targets = targets,
                  .max = memory.Make({4}, kPartial),
                  .sum = memory.Make({4}, kPartial),
                  .target_logit = memory.Make({4}, kPartial)});
  ops.LogitGradient({.logits = logits, .targets = targets, .lse = rows, .dlogits = logits});
  return OkStatus();
}

void RunMlpOnTwo(Mistake mistake) {
  RunRankThreads({.ranks = 2}, [&](comm::Communicator& world) {
    const Status status = RunMlp(mistake, world);
    CRIA_CHECK(status.ok(), Message(status));
  });
}

TEST(PlacementMistakeTest, ARightLayerRuns) { RunMlpOnTwo(Mistake::kNone); }

TEST(PlacementMistakeTest, EachMistakeStopsWithBothPlacements) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::vector<std::pair<Mistake, std::string>> mistakes = {
      {Mistake::kNoGather, "matmul: b is shard\\(0\\), with a shard\\(0\\) it"},
      {Mistake::kNoSum, "rms_norm: delta is partial, x is shard\\(0\\)"},
      {Mistake::kGatherPartial, "gather: x is partial, needs shard\\(0\\)"},
      {Mistake::kSumTwice, "sum and scatter: partial is replicate, needs partial"},
      {Mistake::kGatheredLogits, "logit_stats: logits is replicate, needs shard\\(1\\)"},
      {Mistake::kWholeLoss, "cross_entropy: logits is shard\\(1\\), needs replicate"}};
  for (const auto& [mistake, message] : mistakes) {
    EXPECT_DEATH(RunMlpOnTwo(mistake), message);
  }
}

}  // namespace
}  // namespace cria::model
