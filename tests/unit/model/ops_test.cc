// The op harness: every operation, forward against the naive reference in double, backward against
// numerical gradients of that reference, over backends, types, and odd and aligned shapes.

#include "model/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/parallel.h"
#include "tests/unit/model/op_harness.h"
#include "tests/unit/model/reference.h"

namespace cria::model {
namespace {

using reference::Indices;
using reference::Values;

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;

class OpsTest : public testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  OpsTest() : ops_(Backends()[std::get<0>(GetParam())].make()) {}
  // The compute type: of GEMM operands and of stored activations.
  DType dtype() const { return std::get<1>(GetParam()); }

  const std::unique_ptr<Ops> ops_;
};

INSTANTIATE_TEST_SUITE_P(Backends, OpsTest,
                         testing::Combine(testing::Range(0, static_cast<int>(Backends().size())),
                                          testing::Values(kF32, kBF16)),
                         [](const testing::TestParamInfo<OpsTest::ParamType>& info) {
                           return Backends()[std::get<0>(info.param)].name + "_" +
                                  DTypeName(std::get<1>(info.param));
                         });

struct Gemm3 {
  int64_t m, n, k;
};

TEST_P(OpsTest, MatmulEqualsTheReferenceInEveryLayout) {
  const Gemm3 shapes[] = {{1, 1, 1},    {3, 5, 7},    {33, 65, 129}, {64, 96, 128},
                          {130, 1, 17}, {1, 130, 64}, {257, 40, 16}};
  uint64_t seed = 0;
  for (const auto [m, n, k] : shapes) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const bool accumulate : {false, true}) {
          for (const DType out : {kF32, dtype()}) {
            if (accumulate && out != kF32) continue;
            const int64_t padding = transpose_a == transpose_b ? 8 : 0;
            const TestTensor a = TestTensor::Random(dtype(), transpose_a ? k : m,
                                                    transpose_a ? m : k, ++seed, padding);
            const TestTensor b = TestTensor::Random(dtype(), transpose_b ? n : k,
                                                    transpose_b ? k : n, ++seed, padding);
            const TestTensor c = TestTensor::Random(out, m, n, ++seed, padding);
            Values want = reference::Matmul(
                a.values(), b.values(),
                {.m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = transpose_b});
            const Values before = c.values();
            for (size_t i = 0; i < want.size(); ++i) {
              want[i] = want[i] * 0.75 + (accumulate ? before[i] : 0);
            }
            ops_->Matmul({.a = a.matrix(),
                          .b = b.matrix(),
                          .c = c.matrix(),
                          .transpose_a = transpose_a,
                          .transpose_b = transpose_b,
                          .accumulate = accumulate,
                          .scale = 0.75f});
            ExpectClose(c, want,
                        "matmul " + std::to_string(m) + "x" + std::to_string(n) + "x" +
                            std::to_string(k) + (transpose_a ? " ta" : "") +
                            (transpose_b ? " tb" : "") + (accumulate ? " acc" : ""));
          }
        }
      }
    }
  }
}

// Power-of-two scales: the reference in double rounds exactly alike. model/fp8's own tests have the
// other scales.
TEST_P(OpsTest, QuantizeEqualsTheReferenceInEveryUnit) {
  for (const ScaleUnit unit :
       {ScaleUnit::kTensor, ScaleUnit::kPerRow, ScaleUnit::kPerColumn, ScaleUnit::kRow1x128,
        ScaleUnit::kCol128x1, ScaleUnit::kBlock128x128}) {
    for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
      for (const DType out : {kF32, kBF16}) {
        TestTensor x = TestTensor::Random(dtype(), 131, 150, 3, 2);
        x.Set(0, 0, Fp8Max(format));  // makes the tensor's scale 1
        const TestTensor y(out, 131, 150, 6);
        const QuantizeSpec spec = {format, unit, unit != ScaleUnit::kTensor};
        const Quantized result = ops_->Quantize({spec, x.matrix(), y.matrix()});
        EXPECT_EQ(result.amax, Fp8Max(format));
        EXPECT_EQ(result.dequant, 1);
        EXPECT_EQ(y.values(), reference::Quantize(spec, x.values(), 131, 150));
        EXPECT_TRUE(y.guards_intact());
      }
    }
  }
}

struct Rows {
  int64_t rows, dim;
};
constexpr Rows kRowShapes[] = {{1, 1}, {5, 7}, {33, 64}, {70, 288}};

TEST_P(OpsTest, RmsNormForwardAddsAndNormalises) {
  for (const auto [rows, dim] : kRowShapes) {
    const TestTensor x = TestTensor::Random(kF32, rows, dim, 1);
    const TestTensor delta = TestTensor::Random(dtype(), rows, dim, 2);
    const TestTensor weight = TestTensor::Random(kF32, 1, dim, 3);
    const TestTensor sum(kF32, rows, dim);
    const TestTensor y(dtype(), rows, dim);
    const TestTensor rstd(kF32, 1, rows);
    Values want_rstd;
    Values want = reference::RmsNorm(x.values(), weight.values(), 1e-5f, &want_rstd);
    ops_->RmsNormForward({.x = x.matrix(),
                          .weight = weight.vector(),
                          .y = y.matrix(),
                          .rstd = rstd.vector(),
                          .eps = 1e-5f});
    ExpectClose(y, want, "y");
    ExpectClose(rstd, want_rstd, "rstd");

    Values want_sum = x.values();
    const Values added = delta.values();
    for (size_t i = 0; i < want_sum.size(); ++i) want_sum[i] += added[i];
    want = reference::RmsNorm(want_sum, weight.values(), 1e-5f, &want_rstd);
    ops_->RmsNormForward({.x = x.matrix(),
                          .delta = delta.matrix(),
                          .sum = sum.matrix(),
                          .weight = weight.vector(),
                          .y = y.matrix(),
                          .rstd = rstd.vector(),
                          .eps = 1e-5f});
    ExpectClose(sum, want_sum, "sum");
    ExpectClose(y, want, "y of the sum");
    ExpectClose(rstd, want_rstd, "rstd of the sum");
  }
}

TEST_P(OpsTest, RmsNormBackwardIsTheGradient) {
  for (const auto [rows, dim] : kRowShapes) {
    const TestTensor x = TestTensor::Random(kF32, rows, dim, 1);
    const TestTensor weight = TestTensor::Random(kF32, 1, dim, 2);
    const TestTensor dy = TestTensor::Random(dtype(), rows, dim, 3);
    Values rstd;
    reference::RmsNorm(x.values(), weight.values(), 1e-5f, &rstd);
    const TestTensor rstd_R = TestTensor::Of(kF32, 1, rows, rstd);
    const TestTensor dx(kF32, rows, dim);
    const TestTensor dx_copy(kBF16, rows, dim);
    const TestTensor dweight(kF32, 1, dim);
    const RmsNormBackwardArgs args = {.dy = dy.matrix(),
                                      .x = x.matrix(),
                                      .weight = weight.vector(),
                                      .rstd = rstd_R.vector(),
                                      .dx = dx.matrix(),
                                      .dx_copy = dx_copy.matrix(),
                                      .dweight = dweight.vector()};
    ops_->RmsNormBackward(args);
    const auto loss = [&](const Values& x_value, const Values& weight_value) {
      return Dot(dy.values(), reference::RmsNorm(x_value, weight_value, 1e-5f));
    };
    ExpectGradient(
        dx, x.values(), [&](const Values& v) { return loss(v, weight.values()); }, "dx", 4);
    ExpectClose(dx_copy, dx.values(), "dx_copy");
    ExpectGradient(
        dweight, weight.values(), [&](const Values& v) { return loss(x.values(), v); }, "dweight",
        4);
    // A second call adds.
    Values twice_dx = dx.values();
    Values twice_dweight = dweight.values();
    for (double& v : twice_dx) v *= 2;
    for (double& v : twice_dweight) v *= 2;
    ops_->RmsNormBackward(args);
    ExpectClose(dx, twice_dx, "dx added");
    ExpectClose(dweight, twice_dweight, "dweight added");
  }
}

TEST_P(OpsTest, RopeRotatesAndRotatesBack) {
  for (const int64_t head_dim : {2, 6, 16, 64}) {
    const int64_t rows = 37;
    const int64_t heads = 3;
    const int64_t num_positions = 1200;
    Values cosines;
    Values sines;
    for (int64_t p = 0; p < num_positions; ++p) {
      for (int64_t i = 0; i < head_dim / 2; ++i) {
        const double angle =
            static_cast<double>(p) *
            std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
    }
    const TestTensor cosine_PK = TestTensor::Of(kF32, num_positions, head_dim / 2, cosines);
    const TestTensor sine_PK = TestTensor::Of(kF32, num_positions, head_dim / 2, sines);
    Indices positions;
    for (int32_t r = 0; r < rows; ++r) positions.push_back(r * 31 % 1200);
    const TestTensor position_R = TestTensor::OfIndices(positions);
    const TestTensor x = TestTensor::Random(dtype(), rows, heads * head_dim, 5, 10);
    const Values before = x.values();
    RopeArgs args = {.x = x.matrix(),
                     .positions = position_R.vector(),
                     .cosines = cosine_PK.matrix(),
                     .sines = sine_PK.matrix(),
                     .head_dim = head_dim};
    ops_->Rope(args);
    ExpectClose(x,
                reference::Rope(before, positions, cosine_PK.values(), sine_PK.values(), heads,
                                head_dim, false),
                "rope");
    args.inverse = true;
    ops_->Rope(args);
    ExpectClose(x, before, "rope and back", 2);
  }
}

struct AttentionCase {
  int64_t batch, time, heads, kv_heads, head_dim;
  bool documents;
};

TEST_P(OpsTest, AttentionEqualsTheReferenceAndItsGradient) {
  const AttentionCase cases[] = {{1, 1, 1, 1, 8, false},    {2, 5, 2, 2, 16, false},
                                 {1, 37, 4, 2, 24, false},  {2, 33, 3, 1, 48, true},
                                 {1, 128, 2, 1, 16, false}, {1, 131, 1, 1, 64, true}};
  for (const AttentionCase& c : cases) {
    const int64_t rows = c.batch * c.time;
    const std::string what = "attention of " + std::to_string(c.time) + " ";
    const TestTensor q = TestTensor::Random(dtype(), rows, c.heads * c.head_dim, 1, 16);
    const TestTensor k = TestTensor::Random(dtype(), rows, c.kv_heads * c.head_dim, 2, 16);
    const TestTensor v = TestTensor::Random(dtype(), rows, c.kv_heads * c.head_dim, 3, 16);
    const TestTensor dout = TestTensor::Random(dtype(), rows, c.heads * c.head_dim, 4);
    Indices doc_start;  // documents of 1, 2, 3, ... tokens
    for (int64_t b = 0; b < c.batch; ++b) {
      int32_t start = 0;
      int32_t length = 1;
      for (int32_t t = 0; t < c.time; ++t) {
        if (c.documents && t == start + length) {
          start = t;
          ++length;
        }
        doc_start.push_back(start);
      }
    }
    const TestTensor doc_start_R = TestTensor::OfIndices(doc_start);
    const TestTensor out(dtype(), rows, c.heads * c.head_dim);
    const TestTensor lse(kF32, 1, rows * c.heads);
    const double scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.head_dim)));
    const AttentionForwardArgs forward = {.q = q.matrix(),
                                          .k = k.matrix(),
                                          .v = v.matrix(),
                                          .doc_start = doc_start_R.vector(),
                                          .out = out.matrix(),
                                          .lse = lse.vector(),
                                          .batch = c.batch,
                                          .time = c.time,
                                          .heads = c.heads,
                                          .kv_heads = c.kv_heads,
                                          .head_dim = c.head_dim,
                                          .scale = static_cast<float>(scale)};
    ops_->AttentionForward(forward);
    const reference::AttentionShape shape = {c.batch,    c.time,     c.heads,
                                             c.kv_heads, c.head_dim, scale};
    Values want_lse;
    ExpectClose(
        out, reference::Attention(q.values(), k.values(), v.values(), doc_start, shape, &want_lse),
        what + "out", 2);
    ExpectClose(lse, want_lse, what + "lse");

    const TestTensor dq(dtype(), rows, c.heads * c.head_dim, 16);
    const TestTensor dk(dtype(), rows, c.kv_heads * c.head_dim, 16);
    const TestTensor dv(dtype(), rows, c.kv_heads * c.head_dim, 16);
    ops_->AttentionBackward({.forward = forward,
                             .dout = dout.matrix(),
                             .dq = dq.matrix(),
                             .dk = dk.matrix(),
                             .dv = dv.matrix()});
    const auto loss = [&](const Values& q_value, const Values& k_value, const Values& v_value) {
      return Dot(dout.values(), reference::Attention(q_value, k_value, v_value, doc_start, shape));
    };
    ExpectGradient(
        dq, q.values(), [&](const Values& x) { return loss(x, k.values(), v.values()); },
        what + "dq", 4);
    ExpectGradient(
        dk, k.values(), [&](const Values& x) { return loss(q.values(), x, v.values()); },
        what + "dk", 4);
    ExpectGradient(
        dv, v.values(), [&](const Values& x) { return loss(q.values(), k.values(), x); },
        what + "dv", 4);
  }
}

TEST_P(OpsTest, SwigluEqualsTheReferenceAndItsGradient) {
  for (const auto [rows, ffn] : kRowShapes) {
    const TestTensor gate_up = TestTensor::Random(dtype(), rows, 2 * ffn, 1, 0, 3);
    const TestTensor dact = TestTensor::Random(dtype(), rows, ffn, 2);
    const TestTensor act(dtype(), rows, ffn);
    ops_->SwigluForward({.gate_up = gate_up.matrix(), .act = act.matrix()});
    ExpectClose(act, reference::Swiglu(gate_up.values(), ffn), "act");
    const TestTensor again(dtype(), rows, ffn);
    const TestTensor dgate_up(dtype(), rows, 2 * ffn);
    ops_->SwigluBackward({.gate_up = gate_up.matrix(),
                          .dact = dact.matrix(),
                          .dgate_up = dgate_up.matrix(),
                          .act = again.matrix()});
    EXPECT_EQ(again.values(), act.values());
    ExpectGradient(
        dgate_up, gate_up.values(),
        [&](const Values& x) { return Dot(dact.values(), reference::Swiglu(x, ffn)); }, "dgate_up");
    // In place.
    ops_->SwigluBackward(
        {.gate_up = gate_up.matrix(), .dact = dact.matrix(), .dgate_up = gate_up.matrix()});
    EXPECT_EQ(gate_up.values(), dgate_up.values());
  }
}

TEST_P(OpsTest, EmbeddingLooksUpAndAddsUp) {
  const int64_t vocab = 11;
  const Indices tokens = {3, 0, 10, 3, 3, 7};  // one token three times: its gradients add
  const TestTensor tokens_R = TestTensor::OfIndices(tokens);
  for (const int64_t dim : {1, 65, 200}) {
    const TestTensor table = TestTensor::Random(kF32, vocab, dim, 1);
    const TestTensor out(kF32, 6, dim);
    ops_->EmbeddingForward(
        {.tokens = tokens_R.vector(), .table = table.matrix(), .out = out.matrix()});
    EXPECT_EQ(out.values(), reference::Embedding(tokens, table.values(), dim));
    const TestTensor dout = TestTensor::Random(kF32, 6, dim, 2);
    const TestTensor dtable(kF32, vocab, dim);
    ops_->EmbeddingBackward(
        {.tokens = tokens_R.vector(), .dout = dout.matrix(), .dtable = dtable.matrix()});
    ExpectGradient(
        dtable, table.values(),
        [&](const Values& x) { return Dot(dout.values(), reference::Embedding(tokens, x, dim)); },
        "dtable");
  }
}

TEST_P(OpsTest, CrossEntropyEqualsTheReferenceAndItsGradient) {
  for (const int64_t vocab : {1, 2, 131, 4096}) {
    for (const double z_loss : {0.0, 0.125}) {
      const int64_t rows = 7;
      Indices targets;  // the fourth counts as nothing
      for (int32_t r = 0; r < rows; ++r) {
        targets.push_back(r == 3 ? -100 : static_cast<int32_t>(r * 37 % vocab));
      }
      const TestTensor targets_R = TestTensor::OfIndices(targets);
      const TestTensor logits = TestTensor::Random(kF32, rows, vocab, 4, 0, 2);
      const TestTensor losses(kF32, 1, rows);
      const TestTensor dlogits(dtype(), rows, vocab);
      ops_->CrossEntropy({.logits = logits.matrix(),
                          .targets = targets_R.vector(),
                          .losses = losses.vector(),
                          .dlogits = dlogits.matrix(),
                          .grad_scale = 0.25f,
                          .z_loss = static_cast<float>(z_loss)});
      ExpectClose(losses, reference::CrossEntropy(logits.values(), targets, vocab, 0), "losses");
      ExpectGradient(
          dlogits, logits.values(),
          [&](const Values& x) {
            double sum = 0;
            for (const double l : reference::CrossEntropy(x, targets, vocab, z_loss)) {
              sum += 0.25 * l;
            }
            return sum;
          },
          "dlogits of " + std::to_string(vocab), 2);
      for (int64_t v = 0; v < vocab; ++v) EXPECT_EQ(dlogits.At(3, v), 0);
    }
  }
}

TEST_P(OpsTest, AdamWEqualsTheReferenceOverSteps) {
  for (const int64_t n : {1, 31, 5000}) {
    const TestTensor weight = TestTensor::Random(kF32, 1, n, 1);
    const TestTensor m(kF32, 1, n);
    const TestTensor v(kF32, 1, n);
    Values want_weight = weight.values();
    Values want_m = m.values();
    Values want_v = v.values();
    for (int64_t step = 1; step <= 5; ++step) {
      const TestTensor grad = TestTensor::Random(kF32, 1, n, static_cast<uint64_t>(step) + 10);
      ops_->AdamW({.weight = weight.vector(),
                   .grad = grad.vector(),
                   .m = m.vector(),
                   .v = v.vector(),
                   .lr = 0.01f,
                   .beta1 = 0.9f,
                   .beta2 = 0.95f,
                   .eps = 1e-8f,
                   .weight_decay = 0.1f,
                   .grad_scale = 0.5f,
                   .step = step});
      reference::AdamW({.lr = 0.01f,
                        .beta1 = 0.9f,
                        .beta2 = 0.95f,
                        .eps = 1e-8f,
                        .weight_decay = 0.1f,
                        .grad_scale = 0.5f,
                        .step = step},
                       grad.values(), &want_weight, &want_m, &want_v);
    }
    ExpectClose(weight, want_weight, "weight");
    ExpectClose(m, want_m, "m");
    ExpectClose(v, want_v, "v");
  }
}

TEST_P(OpsTest, SumOfSquaresIsExactEnoughAndShowsEveryNonFiniteElement) {
  for (const int64_t n : {1, 33, 100003}) {
    TestTensor x = TestTensor::Random(kF32, 1, n, 8);
    const double want = Dot(x.values(), x.values());
    EXPECT_NEAR(ops_->SumOfSquares(x.vector()), want, 1e-6 * want);
    for (const double bad :
         {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
      x.Set(0, n / 2, bad);
      EXPECT_FALSE(std::isfinite(ops_->SumOfSquares(x.vector())));
    }
    x.Set(0, n / 2, 1e30);  // its square overflows fp32 and is no reason to skip a step
    EXPECT_TRUE(std::isfinite(ops_->SumOfSquares(x.vector())));
  }
}

TEST_P(OpsTest, CopyConvertsAndZeroClears) {
  for (const DType from : {kF32, kBF16}) {
    const TestTensor x = TestTensor::Random(from, 19, 37, 6, 3);
    const TestTensor y(dtype(), 19, 37, 5);
    ops_->Copy(x.matrix(), y.matrix());
    EXPECT_EQ(y.values(), TestTensor::Of(dtype(), 19, 37, x.values()).values());
    EXPECT_TRUE(y.guards_intact());
    const TestTensor z = TestTensor::Random(from, 19, 37, 6);
    ops_->Zero(z.matrix());
    EXPECT_EQ(z.values(), Values(19 * 37));
  }
}

// One operation of each kind of partition, on one thread and on three.
TEST_P(OpsTest, GivesTheSameBitsForAnyNumberOfThreads) {
  const int num_threads = NumThreads();
  const auto run = [&](int threads) {
    SetNumThreads(threads);
    const TestTensor a = TestTensor::Random(dtype(), 130, 96, 1);
    const TestTensor b = TestTensor::Random(dtype(), 70, 96, 2);
    const TestTensor c(kF32, 130, 70);
    ops_->Matmul({.a = a.matrix(), .b = b.matrix(), .c = c.matrix(), .transpose_b = true});
    const TestTensor x = TestTensor::Random(kF32, 130, 96, 3);
    const TestTensor weight = TestTensor::Random(kF32, 1, 96, 4);
    const TestTensor rstd = TestTensor::Random(kF32, 1, 130, 5);
    const TestTensor dx(kF32, 130, 96);
    const TestTensor dweight(kF32, 1, 96);
    ops_->RmsNormBackward({.dy = a.matrix(),
                           .x = x.matrix(),
                           .weight = weight.vector(),
                           .rstd = rstd.vector(),
                           .dx = dx.matrix(),
                           .dweight = dweight.vector()});
    Values all = c.values();
    for (const TestTensor* t : {&dx, &dweight}) {
      const Values values = t->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    all.push_back(ops_->SumOfSquares(x.vector()));
    return all;
  };
  EXPECT_EQ(run(1), run(3));
  SetNumThreads(num_threads);
}

}  // namespace
}  // namespace cria::model
