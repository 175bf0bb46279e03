// The op harness: norms, rotary embedding, SwiGLU, embedding, copies.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/model/ops_fixture.h"
#include "tests/unit/model/reference.h"

namespace cria::model {
namespace {

using reference::Indices;
using reference::Values;

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

struct Shape {
  int64_t rows, dim;
  std::string Name() const { return " of " + std::to_string(rows) + " x " + std::to_string(dim); }
};
// Around a vector, around the kernels' blocks of 64 rows, primes.
constexpr Shape kShapes[] = {{1, 1},   {5, 7},    {63, 8},   {64, 16}, {65, 17},
                             {33, 64}, {70, 288}, {130, 31}, {257, 5}};

class RmsNormTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(RmsNormTest);

TEST_P(RmsNormTest, AddsAndNormalises) {
  for (const Shape& shape : kShapes) {
    const auto [rows, dim] = shape;
    const TestTensor x = TestTensor::Random(kF32, rows, dim, 1);
    const TestTensor delta = TestTensor::Random(dtype(), rows, dim, 2);
    const TestTensor weight = TestTensor::Random(kF32, 1, dim, 3);
    Values sum = x.values();
    const Values added = delta.values();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += added[i];
    for (const bool in_place : {false, true}) {
      const std::vector<TestTensor> out = Run([&](Ops& ops) {
        const TestTensor y(dtype(), rows, dim), rstd(kF32, 1, rows);
        RmsNormForwardArgs args = {.x = x.matrix(),
                                   .weight = weight.vector(),
                                   .y = y.matrix(),
                                   .rstd = rstd.vector(),
                                   .eps = 1e-5f};
        ops.RmsNormForward(args);
        const TestTensor x_again = x, sum_out(kF32, rows, dim);
        const TestTensor y_of_sum(dtype(), rows, dim), rstd_of_sum(kF32, 1, rows);
        args.x = x_again.matrix();
        args.delta = delta.matrix();
        args.sum = in_place ? args.x : sum_out.matrix();
        args.y = y_of_sum.matrix();
        args.rstd = rstd_of_sum.vector();
        ops.RmsNormForward(args);
        return std::vector{y, rstd, in_place ? x_again : sum_out, y_of_sum, rstd_of_sum};
      });
      Values rstd;
      Values want = reference::RmsNorm(x.values(), weight.values(), 1e-5f, &rstd);
      ExpectClose(Op::kRmsNorm, out[0], want, "y" + shape.Name());
      ExpectClose(Op::kRmsNorm, out[1], rstd, "rstd" + shape.Name());
      ExpectClose(Op::kRmsNorm, out[2], sum, "sum" + shape.Name());
      want = reference::RmsNorm(sum, weight.values(), 1e-5f, &rstd);
      ExpectClose(Op::kRmsNorm, out[3], want, "y of the sum" + shape.Name());
      ExpectClose(Op::kRmsNorm, out[4], rstd, "rstd of the sum" + shape.Name());
    }
  }
}

// Recomputation takes the sum that was kept, where the first pass added.
TEST_P(RmsNormTest, OfTheSumAgainGivesTheSameBits) {
  for (const Shape& shape : kShapes) {
    const auto [rows, dim] = shape;
    const TestTensor x = TestTensor::Random(kF32, rows, dim, 1);
    const TestTensor delta = TestTensor::Random(dtype(), rows, dim, 2);
    const TestTensor weight = TestTensor::Random(kF32, 1, dim, 3);
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const TestTensor sum(kF32, rows, dim), y(dtype(), rows, dim), rstd(kF32, 1, rows);
      const TestTensor y_again(dtype(), rows, dim), rstd_again(kF32, 1, rows);
      RmsNormForwardArgs args = {.x = x.matrix(),
                                 .delta = delta.matrix(),
                                 .sum = sum.matrix(),
                                 .weight = weight.vector(),
                                 .y = y.matrix(),
                                 .rstd = rstd.vector(),
                                 .eps = 1e-5f};
      ops.RmsNormForward(args);
      args.x = sum.matrix();
      args.delta = args.sum = {};
      args.y = y_again.matrix();
      args.rstd = rstd_again.vector();
      ops.RmsNormForward(args);
      return std::vector{y, rstd, y_again, rstd_again};
    });
    EXPECT_EQ(out[2].values(), out[0].values()) << shape.Name();
    EXPECT_EQ(out[3].values(), out[1].values()) << shape.Name();
  }
}

TEST_P(RmsNormTest, BackwardIsTheGradientAndAdds) {
  for (const Shape& shape : kShapes) {
    const auto [rows, dim] = shape;
    const TestTensor x = TestTensor::Random(kF32, rows, dim, 1);
    const TestTensor weight = TestTensor::Random(kF32, 1, dim, 2);
    const TestTensor dy = TestTensor::Random(dtype(), rows, dim, 3);
    const TestTensor dx_before = TestTensor::Random(kF32, rows, dim, 4);
    const TestTensor dweight_before = TestTensor::Random(kF32, 1, dim, 5);
    Values rstd;
    reference::RmsNorm(x.values(), weight.values(), 1e-5f, &rstd);
    const TestTensor rstd_R = TestTensor::Of(kF32, 1, rows, rstd);
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      RmsNormBackwardArgs args = {
          .dy = dy.matrix(), .x = x.matrix(), .weight = weight.vector(), .rstd = rstd_R.vector()};
      const TestTensor dx(kF32, rows, dim), dx_copy(kBF16, rows, dim), dweight(kF32, 1, dim);
      args.dx = dx.matrix();
      args.dx_copy = dx_copy.matrix();
      args.dweight = dweight.vector();
      ops.RmsNormBackward(args);
      const TestTensor dx_sum = dx_before, dweight_sum = dweight_before;
      args.dx = dx_sum.matrix();
      args.dx_copy = {};
      args.dweight = dweight_sum.vector();
      ops.RmsNormBackward(args);
      return std::vector{dx, dx_copy, dweight, dx_sum, dweight_sum};
    });
    reference::RmsNormGradients want =
        reference::RmsNormBackward(dy.values(), x.values(), weight.values(), 1e-5f);
    const Op op = Op::kRmsNormBackward;
    ExpectClose(op, out[0], want.dx, "dx" + shape.Name());
    EXPECT_EQ(out[1].values(), TestTensor::Of(kBF16, rows, dim, out[0].values()).values());
    ExpectClose(op, out[2], want.dweight, "dweight" + shape.Name());
    const Values dx_0 = dx_before.values(), dweight_0 = dweight_before.values();
    for (size_t i = 0; i < dx_0.size(); ++i) want.dx[i] += dx_0[i];
    for (size_t i = 0; i < dweight_0.size(); ++i) want.dweight[i] += dweight_0[i];
    ExpectClose(op, out[3], want.dx, "dx added" + shape.Name());
    ExpectClose(op, out[4], want.dweight, "dweight added" + shape.Name());

    if (rows * dim > 1000) continue;
    const auto loss = [&](const Values& x_, const Values& weight_) {
      return Dot(dy.values(), reference::RmsNorm(x_, weight_, 1e-5f));
    };
    ExpectGradient(
        op, out[0], x.values(), [&](const Values& v) { return loss(v, weight.values()); },
        "dx" + shape.Name());
    ExpectGradient(
        op, out[2], weight.values(), [&](const Values& v) { return loss(x.values(), v); },
        "dweight" + shape.Name());
  }
}

TEST_P(RmsNormTest, ZeroRowsGiveZerosAndFiniteGradients) {
  const TestTensor x(kF32, 3, 20), weight = TestTensor::Random(kF32, 1, 20, 1);
  const TestTensor dy = TestTensor::Random(dtype(), 3, 20, 2);
  const std::vector<TestTensor> out = Run([&](Ops& ops) {
    const TestTensor y(dtype(), 3, 20), rstd(kF32, 1, 3), dx(kF32, 3, 20), dweight(kF32, 1, 20);
    ops.RmsNormForward({.x = x.matrix(),
                        .weight = weight.vector(),
                        .y = y.matrix(),
                        .rstd = rstd.vector(),
                        .eps = 1e-5f});
    ops.RmsNormBackward({.dy = dy.matrix(),
                         .x = x.matrix(),
                         .weight = weight.vector(),
                         .rstd = rstd.vector(),
                         .dx = dx.matrix(),
                         .dweight = dweight.vector()});
    return std::vector{y, dx, dweight};
  });
  EXPECT_EQ(out[0].values(), Values(60));
  EXPECT_EQ(out[2].values(), Values(20));
  ExpectClose(Op::kRmsNormBackward, out[1],
              reference::RmsNormBackward(dy.values(), x.values(), weight.values(), 1e-5f).dx, "dx");
}

class RopeTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(RopeTest);

TEST_P(RopeTest, RotatesAndRotatesBack) {
  for (const int64_t head_dim : {2, 6, 16, 48, 64, 80, 128}) {
    const int64_t rows = 67;
    const int64_t heads = 3;
    const int64_t num_positions = 1200;
    Values cosines, sines;
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
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const TestTensor forward = x, backward = x;
      RopeArgs args = {.x = forward.matrix(),
                       .positions = position_R.vector(),
                       .cosines = cosine_PK.matrix(),
                       .sines = sine_PK.matrix(),
                       .head_dim = head_dim};
      ops.Rope(args);
      args.x = backward.matrix();
      args.inverse = true;
      ops.Rope(args);
      return std::vector{forward, backward};
    });
    for (const bool inverse : {false, true}) {
      ExpectClose(Op::kRope, out[inverse ? 1 : 0],
                  reference::Rope(x.values(), positions, cosine_PK.values(), sine_PK.values(),
                                  heads, head_dim, inverse),
                  "rope of " + std::to_string(head_dim));
    }
    // Position 0 rotates by nothing.
    for (int64_t c = 0; c < heads * head_dim; ++c) EXPECT_EQ(out[0].At(0, c), x.At(0, c));
  }
}

class SwigluTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(SwigluTest);

TEST_P(SwigluTest, EqualsTheReferenceAndItsGradient) {
  for (const Shape& shape : kShapes) {
    const auto [rows, ffn] = shape;
    const TestTensor gate_up = TestTensor::Random(dtype(), rows, 2 * ffn, 1, 0, 3);
    const TestTensor dact = TestTensor::Random(dtype(), rows, ffn, 2);
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const TestTensor act(dtype(), rows, ffn), again(dtype(), rows, ffn);
      const TestTensor dgate_up(dtype(), rows, 2 * ffn), in_place = gate_up;
      ops.SwigluForward({.gate_up = gate_up.matrix(), .act = act.matrix()});
      ops.SwigluBackward({.gate_up = gate_up.matrix(),
                          .dact = dact.matrix(),
                          .dgate_up = dgate_up.matrix(),
                          .act = again.matrix()});
      ops.SwigluBackward(
          {.gate_up = in_place.matrix(), .dact = dact.matrix(), .dgate_up = in_place.matrix()});
      return std::vector{act, again, dgate_up, in_place};
    });
    ExpectClose(Op::kSwiglu, out[0], reference::Swiglu(gate_up.values(), ffn),
                "act" + shape.Name());
    EXPECT_EQ(out[1].bytes(), out[0].bytes());
    ExpectClose(Op::kSwigluBackward, out[2],
                reference::SwigluBackward(dact.values(), gate_up.values(), ffn),
                "dgate_up" + shape.Name());
    EXPECT_EQ(out[3].bytes(), out[2].bytes());
    if (rows * ffn > 1000) continue;
    ExpectGradient(
        Op::kSwigluBackward, out[2], gate_up.values(),
        [&](const Values& x) { return Dot(dact.values(), reference::Swiglu(x, ffn)); },
        "dgate_up" + shape.Name());
  }
}

TEST_P(SwigluTest, LargeGatesSaturateAndNonFiniteOnesShow) {
  const Values gates = {0, -0.0, 30, -30, 85, -85, 100, -100, 1e30, -1e30, kNan, kInf};
  const auto n = static_cast<int64_t>(gates.size());
  TestTensor gate_up(dtype(), 1, 2 * n), dact(dtype(), 1, n);
  for (int64_t i = 0; i < n; ++i) {
    gate_up.Set(0, i, gates[static_cast<size_t>(i)]);
    gate_up.Set(0, n + i, 1);
    dact.Set(0, i, 1);
  }
  const std::vector<TestTensor> out = Run([&](Ops& ops) {
    const TestTensor act(dtype(), 1, n), dgate_up(dtype(), 1, 2 * n);
    ops.SwigluForward({.gate_up = gate_up.matrix(), .act = act.matrix()});
    ops.SwigluBackward(
        {.gate_up = gate_up.matrix(), .dact = dact.matrix(), .dgate_up = dgate_up.matrix()});
    return std::vector{act, dgate_up};
  });
  for (int64_t i = 0; i < n; ++i) {
    const double gate = gate_up.At(0, i);
    if (!std::isfinite(gate)) {
      EXPECT_FALSE(std::isfinite(out[0].At(0, i))) << gate;
      continue;
    }
    const double step = dtype() == kBF16 ? 0x1p-8 : 1e-6;
    const double silu = gate < -80 ? 0 : gate / (1 + std::exp(-gate));
    EXPECT_NEAR(out[0].At(0, i), silu, step * std::fabs(silu) + 1e-30) << gate;
    EXPECT_NEAR(out[1].At(0, i), gate > 20 ? 1 : gate < -20 ? 0 : 0.5, 1e-8) << gate;
    EXPECT_NEAR(out[1].At(0, n + i), silu, step * std::fabs(silu) + 1e-30) << gate;
  }
}

class EmbeddingTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(EmbeddingTest);

TEST_P(EmbeddingTest, LooksUpAndAddsUp) {
  const int64_t vocab = 131;
  Indices tokens = {3, 0, 130, 3, 3, 7};  // one token three times: its gradients add
  for (int32_t i = 0; i < 131; ++i) tokens.push_back(i * i % 131);
  const auto rows = static_cast<int64_t>(tokens.size());
  const TestTensor tokens_R = TestTensor::OfIndices(tokens);
  for (const int64_t dim : {1, 63, 64, 65, 200}) {
    const TestTensor table = TestTensor::Random(kF32, vocab, dim, 1);
    const TestTensor dout = TestTensor::Random(kF32, rows, dim, 2);
    const TestTensor before = TestTensor::Random(kF32, vocab, dim, 3);
    const std::vector<TestTensor> outputs = Run([&](Ops& ops) {
      const TestTensor out(kF32, rows, dim), dtable = before;
      ops.EmbeddingForward(
          {.tokens = tokens_R.vector(), .table = table.matrix(), .out = out.matrix()});
      ops.EmbeddingBackward(
          {.tokens = tokens_R.vector(), .dout = dout.matrix(), .dtable = dtable.matrix()});
      return std::vector{out, dtable};
    });
    EXPECT_EQ(outputs[0].values(), reference::Embedding(tokens, table.values(), dim));
    Values want = reference::EmbeddingBackward(tokens, dout.values(), vocab, dim);
    const Values added = before.values();
    for (size_t i = 0; i < want.size(); ++i) want[i] += added[i];
    ExpectClose(Op::kEmbedding, outputs[1], want, "dtable of " + std::to_string(dim));
  }
}

TEST_P(EmbeddingTest, PartsOfTheVocabularySumToTheWhole) {
  const int64_t vocab = 131;
  const Indices tokens = {3, 0, 130, 3, 57, 58, 3, 7};
  const auto rows = static_cast<int64_t>(tokens.size());
  const TestTensor tokens_R = TestTensor::OfIndices(tokens);
  for (const int64_t dim : {1, 65}) {
    const TestTensor table = TestTensor::Random(kF32, vocab, dim, 1);
    const TestTensor dout = TestTensor::Random(kF32, rows, dim, 2, 3);
    const TestTensor before = TestTensor::Random(kF32, vocab, dim, 3);
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const TestTensor whole(dtype(), rows, dim), parts(kF32, rows, dim), dtable = before;
      const TestTensor dwhole = before;
      ops.EmbeddingForward(
          {.tokens = tokens_R.vector(), .table = table.matrix(), .out = whole.matrix()});
      ops.EmbeddingBackward(
          {.tokens = tokens_R.vector(), .dout = dout.matrix(), .dtable = dwhole.matrix()});
      for (const auto& [first, last] :
           {std::pair<int64_t, int64_t>{0, 58}, {58, 58}, {58, 131}}) {  // one rank has nothing
        const TestTensor part = TestTensor::Random(dtype(), rows, dim, 4, 5);
        ops.EmbeddingForward({.tokens = tokens_R.vector(),
                              .table = table.matrix().Rows(first, last),
                              .out = part.matrix(),
                              .first_token = first});
        EXPECT_TRUE(part.guards_intact());
        ops.Add({.a = parts.matrix(), .b = part.matrix(), .out = parts.matrix()});
        ops.EmbeddingBackward({.tokens = tokens_R.vector(),
                               .dout = dout.matrix(),
                               .dtable = dtable.matrix().Rows(first, last),
                               .first_token = first});
      }
      return std::vector{whole, parts, dwhole, dtable};
    });
    const Values want = reference::Embedding(tokens, table.values(), dim);
    EXPECT_EQ(out[0].values(), TestTensor::Of(dtype(), rows, dim, want).values());
    EXPECT_EQ(out[1].values(), out[0].values());
    EXPECT_EQ(out[3].bytes(), out[2].bytes());
  }
}

class AddTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(AddTest);

TEST_P(AddTest, AddsInPlaceAndApart) {
  for (const Shape& shape : kShapes) {
    const auto [rows, dim] = shape;
    const TestTensor a = TestTensor::Random(kF32, rows, dim, 1, 3);
    const TestTensor b = TestTensor::Random(dtype(), rows, dim, 2, 1);
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const TestTensor sum(kF32, rows, dim, 2), in_place = a;
      ops.Add({.a = a.matrix(), .b = b.matrix(), .out = sum.matrix()});
      ops.Add({.a = in_place.matrix(), .b = b.matrix(), .out = in_place.matrix()});
      return std::vector{sum, in_place};
    });
    Values want = a.values();
    const Values added = b.values();
    for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<float>(want[i] + added[i]);
    for (const TestTensor& sum : out) {
      EXPECT_EQ(sum.values(), want);
      EXPECT_TRUE(sum.guards_intact());
    }
  }
}

class CopyTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(CopyTest);

TEST_P(CopyTest, ConvertsRowsAndVectors) {
  for (const DType from : {kF32, kBF16}) {
    for (const Shape& shape : kShapes) {
      const TestTensor x = TestTensor::Random(from, shape.rows, shape.dim, 6, 3);
      const std::vector<TestTensor> out = Run([&](Ops& ops) {
        const TestTensor y(dtype(), shape.rows, shape.dim, 5);
        ops.Copy(x.matrix(), y.matrix());
        return std::vector{y};
      });
      EXPECT_EQ(out[0].values(),
                TestTensor::Of(dtype(), shape.rows, shape.dim, x.values()).values());
      EXPECT_TRUE(out[0].guards_intact());
    }
    for (const int64_t n : {1, 16383, 16384, 16385, 40000}) {  // around the kernels' block
      const TestTensor x = TestTensor::Random(from, 1, n, 6);
      const std::vector<TestTensor> out = Run([&](Ops& ops) {
        const TestTensor y(dtype(), 1, n);
        ops.Copy(x.vector(), y.vector());
        return std::vector{y};
      });
      EXPECT_EQ(out[0].values(), TestTensor::Of(dtype(), 1, n, x.values()).values());
    }
  }
}

TEST_P(CopyTest, SpecialValuesStaySpecial) {
  // A NaN whose payload lies in the lower half would round to infinity if it were a number.
  const double low_nan = std::bit_cast<float>(0x7f800001u);
  const Values special = {kNan, -kNan, low_nan, kInf, -kInf, 0.0, -0.0, 3.4028234e38, 1e-40};
  const auto n = static_cast<int64_t>(special.size());
  TestTensor x(kF32, 9, n);
  for (int64_t r = 0; r < 9; ++r) {  // each value in each lane
    for (int64_t c = 0; c < n; ++c) x.Set(r, c, special[static_cast<size_t>((r + c) % n)]);
  }
  const std::vector<TestTensor> out = Run([&](Ops& ops) {
    const TestTensor y(dtype(), 9, n);
    ops.Copy(x.matrix(), y.matrix());
    return std::vector{y};
  });
  for (int64_t r = 0; r < 9; ++r) {
    for (int64_t c = 0; c < n; ++c) {
      const double from = x.At(r, c), to = out[0].At(r, c);
      EXPECT_EQ(std::isnan(to), std::isnan(from)) << from;
      EXPECT_EQ(std::signbit(to), std::signbit(from)) << from;
      const bool rounds_up = from == 3.4028234e38f && dtype() == kBF16;
      if (!std::isnan(from) && std::fabs(from) > 1) {
        EXPECT_EQ(to, rounds_up ? kInf : from);
      }
    }
  }
}

TEST_P(CopyTest, ZeroClearsWhateverWasThere) {
  for (const int64_t n : {1, 703, 600000}) {
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      TestTensor x = TestTensor::Random(dtype(), 1, n, 6);
      x.Set(0, 0, kNan);
      ops.Zero(x.vector());
      return std::vector{x};
    });
    EXPECT_EQ(out[0].bytes(), std::vector<char>(out[0].bytes().size()));
  }
}

}  // namespace
}  // namespace cria::model
