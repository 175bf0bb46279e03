// The op harness: sums in fixed point.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "tests/unit/model/ops_fixture.h"
#include "tests/unit/model/reference.h"

namespace cria::model {
namespace {

using reference::Indices;
using reference::Values;

constexpr DType kF32 = DType::kF32;
constexpr DType kI64 = DType::kI64;

class FixedTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(FixedTest);

// Numbers of all sizes that fit, ties between integers among them.
TestTensor NumbersOfAllSizes(int64_t rows, int64_t columns, int log2_scale) {
  TestTensor x = TestTensor::Random(kF32, rows, columns, 1, 3);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int power = static_cast<int>(i * 7 % 70) - 8;  // up to 2^61
    const double value =
        i % 5 == 0 ? static_cast<double>(i % 64) + 0.5
                   : std::ldexp(std::remainder(x.At(i / columns, i % columns), 1.0), power);
    x.Set(i / columns, i % columns, std::ldexp(value, -log2_scale));
  }
  return x;
}

// The rounding to the type that is wanted, from the integer: once.
double RoundOnce(int64_t x, DType type) {
  const uint64_t magnitude = x < 0 ? -static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
  const int bits = type == kF32 ? 24 : 8;
  const int excess = std::max(0, static_cast<int>(std::bit_width(magnitude)) - bits);
  uint64_t kept = magnitude >> excess;
  if (excess > 0) {
    const uint64_t rest = magnitude & ((uint64_t{1} << excess) - 1);
    const uint64_t half = uint64_t{1} << (excess - 1);
    if (rest > half || (rest == half && kept % 2 == 1)) ++kept;
  }
  const double rounded = std::ldexp(static_cast<double>(kept), excess);
  return x < 0 ? -rounded : rounded;
}

// Also over the pieces that the CPU backend cuts, of one long row and of many.
TEST_P(FixedTest, AddsTheNearestIntegers) {
  if (dtype() != kF32) return;  // operands are fp32
  for (const int log2_scale : {0, 30, -20, 126, -60}) {
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {70, 9}, {65, 100}, {300, 120}, {1, 40003}}) {
      const TestTensor x = NumbersOfAllSizes(rows, columns, log2_scale);
      const std::vector<TestTensor> out = Run([&](Ops& ops) {
        TestTensor sum(kI64, rows, columns, 2);
        for (int64_t i = 0; i < rows * columns; ++i) {
          sum.Set(i / columns, i % columns, static_cast<double>(i) - 5);
        }
        EXPECT_TRUE(
            ops.AddFixed({.from = x.matrix(), .to = sum.matrix(), .log2_scale = log2_scale}));
        const TestTensor floats(kF32, rows, columns, 3);
        ops.FixedToFloat({.from = sum.matrix(), .to = floats.matrix(), .log2_scale = log2_scale});
        return std::vector{sum, floats};
      });
      EXPECT_TRUE(out[0].guards_intact() && out[1].guards_intact());
      const Tensor sums = out[0].matrix();
      for (int64_t i = 0; i < rows * columns; ++i) {
        const double scaled = std::ldexp(x.At(i / columns, i % columns), log2_scale);
        const int64_t want = std::llrint(scaled) + i - 5;
        ASSERT_EQ(sums.i64()[i / columns * sums.stride(0) + i % columns], want) << scaled;
        ASSERT_EQ(out[1].At(i / columns, i % columns),
                  std::ldexp(RoundOnce(want, kF32), -log2_scale));
      }
    }
  }
}

TEST_P(FixedTest, LeavesOutWhatDoesNotFit) {
  if (dtype() != kF32) return;
  const double largest = std::ldexp(1 - 0x1p-24, 32);  // the last float below 2^62 / 2^30
  const std::unique_ptr<Ops> ops = backend().make();
  for (const int64_t columns : {3, 40}) {
    for (const int64_t at : {int64_t{0}, columns / 2, columns - 1}) {
      for (const double good : {largest, -largest, 0.0, 1e-30}) {
        TestTensor x(kF32, 2, columns), sum(kI64, 2, columns);
        x.Set(1, at, good);
        EXPECT_TRUE(ops->AddFixed({x.matrix(), sum.matrix(), 30})) << good;
        EXPECT_EQ(sum.At(1, at), std::rint(good * 0x1p30));
      }
      for (const double bad :
           {std::nan(""), 0x1p32, -0x1p32, 3e38, std::numeric_limits<double>::infinity(),
            -std::numeric_limits<double>::infinity()}) {
        TestTensor x = TestTensor::Random(kF32, 2, columns, 1), sum(kI64, 2, columns);
        x.Set(1, at, bad);
        EXPECT_FALSE(ops->AddFixed({x.matrix(), sum.matrix(), 30})) << bad;
        for (int64_t i = 0; i < 2 * columns; ++i) {
          const double want =
              i == columns + at ? 0 : std::rint(x.At(i / columns, i % columns) * 0x1p30);
          EXPECT_EQ(sum.At(i / columns, i % columns), want) << bad;
        }
      }
    }
  }
}

TEST_P(FixedTest, BecomesFloatWithOneRounding) {
  std::vector<int64_t> integers = {0, 1, -1, INT64_MAX, INT64_MIN, INT64_MIN + 1};
  for (int bit = 0; bit < 62; ++bit) {
    // Around powers of two and around the ties of both types.
    for (const int64_t around : {int64_t{1} << bit, (int64_t{1} << bit) + (int64_t{1} << bit >> 8),
                                 (int64_t{1} << bit) + (int64_t{1} << bit >> 24),
                                 (int64_t{3} << bit >> 1) + (int64_t{1} << bit >> 8)}) {
      for (const int64_t offset : {-1, 0, 1}) {
        integers.push_back(around + offset);
        integers.push_back(-around + offset);
      }
    }
  }
  const int64_t columns = 37, rows = static_cast<int64_t>(integers.size()) / columns;
  TestTensor x(kI64, rows, columns, 1);
  const Tensor memory = x.matrix();
  for (int64_t i = 0; i < rows * columns; ++i) {
    memory.i64()[i / columns * memory.stride(0) + i % columns] = integers[static_cast<size_t>(i)];
  }
  for (const int log2_scale : {0, 40, -20, 126, -60}) {
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const TestTensor y(dtype(), rows, columns, 2);
      ops.FixedToFloat({.from = x.matrix(), .to = y.matrix(), .log2_scale = log2_scale});
      return std::vector{y};
    });
    EXPECT_TRUE(out[0].guards_intact());
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t integer = integers[static_cast<size_t>(i)];
      ASSERT_EQ(out[0].At(i / columns, i % columns),
                std::ldexp(RoundOnce(integer, dtype()), -log2_scale))
          << integer;
    }
  }
}

// What the sums are for: any order, any grouping, one result.
TEST_P(FixedTest, EmbeddingGradientsDoNotDependOnTheOrderOfTokens) {
  if (dtype() != kF32) return;
  const int64_t vocab = 11, dim = 70;
  const Indices tokens = {3, 0, 10, 3, 3, 7, 2, 10};
  const auto rows = static_cast<int64_t>(tokens.size());
  const TestTensor dout = TestTensor::Random(kF32, rows, dim, 2);
  Indices reversed(tokens.rbegin(), tokens.rend());
  TestTensor dout_reversed = dout;
  for (int64_t i = 0; i < rows * dim; ++i) {
    dout_reversed.Set(rows - 1 - i / dim, i % dim, dout.At(i / dim, i % dim));
  }
  const TestTensor tokens_R = TestTensor::OfIndices(tokens);
  const TestTensor reversed_R = TestTensor::OfIndices(reversed);
  const std::vector<TestTensor> out = Run([&](Ops& ops) {
    const TestTensor forward(kI64, vocab, dim), backward(kI64, vocab, dim);
    EXPECT_TRUE(ops.EmbeddingBackward({.tokens = tokens_R.vector(),
                                       .dout = dout.matrix(),
                                       .dtable = forward.matrix(),
                                       .log2_scale = 40}));
    EXPECT_TRUE(ops.EmbeddingBackward({.tokens = reversed_R.vector(),
                                       .dout = dout_reversed.matrix(),
                                       .dtable = backward.matrix().Rows(0, 3),
                                       .log2_scale = 40}));
    EXPECT_TRUE(ops.EmbeddingBackward({.tokens = reversed_R.vector(),
                                       .dout = dout_reversed.matrix(),
                                       .dtable = backward.matrix().Rows(3, vocab),
                                       .first_token = 3,
                                       .log2_scale = 40}));
    return std::vector{forward, backward};
  });
  EXPECT_EQ(out[1].bytes(), out[0].bytes());
  Values want = reference::EmbeddingBackward(tokens, dout.values(), vocab, dim);
  for (double& x : want) x *= 0x1p40;
  ExpectClose(Op::kEmbedding, out[0], want, "dtable");
  TestTensor bad = dout;
  bad.Set(5, 69, std::nan(""));
  const TestTensor sum(kI64, vocab, dim);
  EXPECT_FALSE(backend().make()->EmbeddingBackward(
      {.tokens = tokens_R.vector(), .dout = bad.matrix(), .dtable = sum.matrix()}));
}

}  // namespace
}  // namespace cria::model
