// The op harness: operations on no rows, no columns, no keys. A rank of many may hold nothing.

#include <cstdint>
#include <vector>

#include "tests/unit/model/ops_fixture.h"
#include "tests/unit/model/reference.h"

namespace cria::model {
namespace {

using reference::Values;

constexpr DType kF32 = DType::kF32;
constexpr DType kI64 = DType::kI64;

class EmptyTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(EmptyTest);

TEST_P(EmptyTest, EveryOperationTakesNoRows) {
  const TestTensor x(kF32, 0, 16), low(dtype(), 0, 16), wide(dtype(), 0, 32), integers(kI64, 0, 16);
  const TestTensor none = TestTensor::OfIndices({}), nothing(kF32, 1, 0);
  const TestTensor weight = TestTensor::Random(kF32, 1, 16, 1);
  const TestTensor table = TestTensor::Random(kF32, 5, 16, 2), angles(kF32, 3, 4);
  const TestTensor w = TestTensor::Random(dtype(), 16, 16, 3);
  Run([&](Ops& ops) {
    ops.Matmul({.a = low.matrix(), .b = w.matrix(), .c = low.matrix(), .transpose_b = true});
    ops.RmsNormForward(
        {.x = x.matrix(), .weight = weight.vector(), .y = low.matrix(), .rstd = nothing.vector()});
    TestTensor dweight = weight;
    ops.RmsNormBackward({.dy = low.matrix(),
                         .x = x.matrix(),
                         .weight = weight.vector(),
                         .rstd = nothing.vector(),
                         .dx = x.matrix(),
                         .dweight = dweight.vector()});
    EXPECT_EQ(dweight.values(), weight.values());
    ops.Rope({.x = low.matrix(),
              .positions = none.vector(),
              .cosines = angles.matrix(),
              .sines = angles.matrix(),
              .head_dim = 8});
    ops.SwigluForward({.gate_up = wide.matrix(), .act = low.matrix()});
    ops.SwigluBackward({.gate_up = wide.matrix(), .dact = low.matrix(), .dgate_up = wide.matrix()});
    ops.EmbeddingForward({.tokens = none.vector(), .table = table.matrix(), .out = low.matrix()});
    ops.EmbeddingBackward({.tokens = none.vector(), .dout = x.matrix(), .dtable = table.matrix()});
    ops.CrossEntropy({.logits = x.matrix(),
                      .targets = none.vector(),
                      .losses = nothing.vector(),
                      .dlogits = low.matrix()});
    ops.LogitStats({.logits = x.matrix(),
                    .targets = none.vector(),
                    .max = nothing.vector(),
                    .sum = nothing.vector(),
                    .target_logit = nothing.vector()});
    ops.LogitGradient({.logits = x.matrix(),
                       .targets = none.vector(),
                       .lse = nothing.vector(),
                       .dlogits = low.matrix()});
    ops.Add({.a = x.matrix(), .b = low.matrix(), .out = x.matrix()});
    EXPECT_TRUE(ops.AddFixed({.from = x.matrix(), .to = integers.matrix()}));
    ops.FixedToFloat({.from = integers.matrix(), .to = low.matrix()});
    ops.AdamW({.weight = nothing.vector(),
               .grad = nothing.vector(),
               .m = nothing.vector(),
               .v = nothing.vector()});
    EXPECT_EQ(ops.SumOfSquares(nothing.vector()), 0);
    ops.Zero(low.vector());
    ops.Copy(x.matrix(), low.matrix());
    return std::vector{dweight};
  });
}

// A product over nothing is zero, and adds nothing; a part of nothing is nothing.
TEST_P(EmptyTest, ProductsOverNothingAreZeros) {
  const TestTensor before = TestTensor::Random(kF32, 40, 50, 3);
  for (const bool transpose : {false, true}) {
    for (const bool chain : {false, true}) {
      if (chain && dtype() != kF32) continue;
      const TestTensor a(dtype(), transpose ? 0 : 40, transpose ? 40 : 0);
      const TestTensor b(dtype(), transpose ? 50 : 0, transpose ? 0 : 50);
      const std::vector<TestTensor> out = Run([&](Ops& ops) {
        const TestTensor c = before, sum = before;
        MatmulArgs args = {.a = a.matrix(),
                           .b = b.matrix(),
                           .c = c.matrix(),
                           .transpose_a = transpose,
                           .transpose_b = transpose,
                           .chain = chain};
        ops.Matmul(args);
        args.accumulate = true;
        args.c = sum.matrix();
        ops.Matmul(args);
        return std::vector{c, sum};
      });
      EXPECT_EQ(out[0].values(), Values(2000));
      EXPECT_EQ(out[1].bytes(), before.bytes());
    }
  }
}

// A stretch without queries gives its keys zeros.
TEST_P(EmptyTest, AttentionOfNoQueries) {
  const TestTensor none = TestTensor::OfIndices({}), nothing(kF32, 1, 0), q(dtype(), 0, 32);
  const TestTensor k = TestTensor::Random(dtype(), 70, 16, 1),
                   v = TestTensor::Random(dtype(), 70, 16, 2);
  const std::vector<TestTensor> out = Run([&](Ops& ops) {
    const TestTensor dk = k, dv = v;
    const AttentionForwardArgs forward = {.q = q.matrix(),
                                          .k = k.matrix(),
                                          .v = v.matrix(),
                                          .doc_start = none.vector(),
                                          .out = q.matrix(),
                                          .lse = nothing.vector(),
                                          .batch = 1,
                                          .time = 0,
                                          .heads = 2,
                                          .kv_heads = 1,
                                          .head_dim = 16,
                                          .scale = 0.25f,
                                          .keys = 70};
    ops.AttentionForward(forward);
    ops.AttentionBackward({.forward = forward,
                           .dout = q.matrix(),
                           .dq = q.matrix(),
                           .dk = dk.matrix(),
                           .dv = dv.matrix()});
    return std::vector{dk, dv};
  });
  for (const TestTensor& x : out) EXPECT_EQ(x.values(), Values(70 * 16));
}

}  // namespace
}  // namespace cria::model
