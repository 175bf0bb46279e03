// The op harness: matrix products and quantisation.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/fp8/quantize.h"
#include "tests/unit/model/ops_fixture.h"
#include "tests/unit/model/reference.h"

namespace cria::model {
namespace {

using reference::Values;

constexpr DType kF32 = DType::kF32;
constexpr DType kBF16 = DType::kBF16;

class MatmulTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(MatmulTest);

struct Sizes {
  int64_t m, n, k;
};

// Of vectors, of a register tile, and of the tiles that the CPU backend cuts C into (256 rows,
// 1024 columns), one less and one more.
constexpr Sizes kSizes[] = {{1, 1, 1},     {3, 5, 7},     {33, 65, 129}, {64, 96, 128},
                            {130, 1, 17},  {1, 130, 64},  {255, 24, 16}, {256, 24, 16},
                            {257, 40, 16}, {300, 40, 33}, {520, 33, 20}, {2, 1023, 5},
                            {40, 1030, 9}, {17, 2050, 11}};

struct Product {
  Sizes sizes;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  float scale = 1;
  int64_t padding = 0;  // of the rows of all three
  DType a_type = kF32, b_type = kF32, c_type = kF32;
  bool chain = false;

  std::string Name() const {
    return "matmul " + std::to_string(sizes.m) + "x" + std::to_string(sizes.n) + "x" +
           std::to_string(sizes.k) + (transpose_a ? " ta" : "") + (transpose_b ? " tb" : "") +
           (accumulate ? " acc" : "") + " scale " + std::to_string(scale) + " padding " +
           std::to_string(padding) + " " + DTypeName(a_type) + " " + DTypeName(b_type) + " " +
           DTypeName(c_type) + (chain ? " chain" : "");
  }
};

void Check(const Backend& backend, const Product& p) {
  const auto [m, n, k] = p.sizes;
  const TestTensor a =
      TestTensor::Random(p.a_type, p.transpose_a ? k : m, p.transpose_a ? m : k, 1, p.padding);
  const TestTensor b =
      TestTensor::Random(p.b_type, p.transpose_b ? n : k, p.transpose_b ? k : n, 2, p.padding);
  const TestTensor before = TestTensor::Random(p.c_type, m, n, 3, p.padding);
  Values want = reference::Matmul(a.values(), b.values(), {m, n, k, p.transpose_a, p.transpose_b});
  const Values added = before.values();
  for (size_t i = 0; i < want.size(); ++i) {
    want[i] = want[i] * p.scale + (p.accumulate ? added[i] : 0);
  }
  const std::vector<TestTensor> out = OnAnyThreads(backend, [&](Ops& ops) {
    const TestTensor c = before;
    ops.Matmul({.a = a.matrix(),
                .b = b.matrix(),
                .c = c.matrix(),
                .transpose_a = p.transpose_a,
                .transpose_b = p.transpose_b,
                .accumulate = p.accumulate,
                .scale = p.scale,
                .chain = p.chain});
    return std::vector{c};
  });
  ExpectClose(Op::kMatmul, out[0], want, p.Name());
}

Values Transposed(const TestTensor& x) {
  Values values;
  for (int64_t c = 0; c < x.cols(); ++c) {
    for (int64_t r = 0; r < x.rows(); ++r) values.push_back(x.At(r, c));
  }
  return values;
}

TEST_P(MatmulTest, EqualsTheReferenceInEveryLayout) {
  int case_index = 0;
  for (const Sizes& sizes : kSizes) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const DType out : {kF32, kBF16}) {
          if (dtype() == kF32 && out == kBF16) continue;
          for (const bool accumulate : {false, true}) {
            if (accumulate && out != kF32) continue;
            // Scales and paddings take turns.
            const float scale = case_index % 2 == 0 ? 1.0f : -0.75f;
            const int64_t padding = std::vector<int64_t>{0, 8, 3}[case_index % 3];
            ++case_index;
            Check(backend(), {sizes, transpose_a, transpose_b, accumulate, scale, padding, dtype(),
                              dtype(), out});
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, ChainsEqualTheReferenceInEveryLayout) {
  if (dtype() != kF32) return;  // fp32 operands only
  int case_index = 0;
  for (const Sizes& sizes : kSizes) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const bool accumulate : {false, true}) {
          const float scale = case_index % 2 == 0 ? 1.0f : -0.75f;
          const int64_t padding = std::vector<int64_t>{0, 8, 3}[case_index % 3];
          ++case_index;
          Check(backend(), {.sizes = sizes,
                            .transpose_a = transpose_a,
                            .transpose_b = transpose_b,
                            .accumulate = accumulate,
                            .scale = scale,
                            .padding = padding,
                            .chain = true});
        }
      }
    }
  }
}

// However a product is split over ranks, by rows or by columns, an element is the same bits; and
// those of decoding's product.
TEST_P(MatmulTest, ChainsAreTheSameBitsInEverySplit) {
  if (dtype() != kF32) return;
  const int64_t m = 300, n = 150, k = 700;
  const TestTensor a = TestTensor::Random(kF32, m, k, 1),
                   at = TestTensor::Of(kF32, k, m, Transposed(a));
  const TestTensor b = TestTensor::Random(kF32, n, k, 2),
                   bt = TestTensor::Of(kF32, k, n, Transposed(b));
  const std::vector<TestTensor> out = Run([&](Ops& ops) {
    TestTensor packed(kF32, 1, ops.PackedElements(kF32, n, k));
    ops.PackWeight({b.matrix(), packed.vector(), 0});
    const TestTensor c(kF32, m, n);
    ops.MatmulPacked({.a = a.matrix(), .packed = packed.vector(), .c = c.matrix()});
    return std::vector{c};
  });
  const std::unique_ptr<Ops> ops = backend().make();
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const auto& [rows, columns] :
           {std::pair<int64_t, int64_t>{m, n}, {1, n}, {16, 70}, {100, 1}, {241, 33}}) {
        const TestTensor c(kF32, m, n);
        for (int64_t row = 0; row < m; row += rows) {
          const int64_t end = std::min(m, row + rows);
          for (int64_t column = 0; column < n; column += columns) {
            const int64_t last = std::min(n, column + columns);
            ops->Matmul(
                {.a = transpose_a ? at.matrix().Columns(row, end) : a.matrix().Rows(row, end),
                 .b = transpose_b ? b.matrix().Rows(column, last)
                                  : bt.matrix().Columns(column, last),
                 .c = c.matrix().Rows(row, end).Columns(column, last),
                 .transpose_a = transpose_a,
                 .transpose_b = transpose_b,
                 .chain = true});
          }
        }
        EXPECT_EQ(c.bytes(), out[0].bytes()) << rows << " x " << columns;
      }
    }
  }
}

TEST_P(MatmulTest, TakesEveryCombinationOfTypes) {
  for (const Sizes& sizes : {Sizes{33, 65, 40}, Sizes{260, 24, 17}}) {
    for (const DType a : {kF32, kBF16}) {
      for (const DType b : {kF32, kBF16}) {
        for (const bool transpose : {false, true}) {
          for (const float scale : {1.0f, 0.5f}) {
            Check(backend(), {sizes, transpose, transpose, false, scale, 5, a, b, dtype()});
          }
        }
      }
    }
  }
}

// A model hands over parts of one buffer: q, k, v of a fused projection.
TEST_P(MatmulTest, ReadsAndWritesColumnsOfAWiderMatrix) {
  const TestTensor wide_a = TestTensor::Random(dtype(), 70, 100, 1);
  const TestTensor wide_b = TestTensor::Random(dtype(), 50, 90, 2);
  const Tensor a = wide_a.matrix().Columns(10, 43);
  const Tensor b = wide_b.matrix().Columns(7, 40);
  Values a_values, b_values;
  for (int64_t i = 0; i < 70 * 33; ++i) a_values.push_back(wide_a.At(i / 33, 10 + i % 33));
  for (int64_t i = 0; i < 50 * 33; ++i) b_values.push_back(wide_b.At(i / 33, 7 + i % 33));
  const Values want = reference::Matmul(a_values, b_values, {70, 50, 33, false, true});
  const std::vector<TestTensor> out = Run([&](Ops& ops) {
    const TestTensor c(dtype(), 70, 120);
    ops.Matmul({.a = a, .b = b, .c = c.matrix().Columns(31, 81), .transpose_b = true});
    return std::vector{c};
  });
  TestTensor middle(dtype(), 70, 50);
  for (int64_t r = 0; r < 70; ++r) {
    for (int64_t c = 0; c < 120; ++c) {
      if (c >= 31 && c < 81) {
        middle.Set(r, c - 31, out[0].At(r, c));
      } else {
        EXPECT_EQ(out[0].At(r, c), 0) << r << ", " << c;
      }
    }
  }
  ExpectClose(Op::kMatmul, middle, want, "columns");
}

// A packed copy of weights must not outlive them.
TEST_P(MatmulTest, WeightsAreReadAgainWhenTheyChanged) {
  for (const Sizes& sizes : {Sizes{64, 48, 33}, Sizes{300, 40, 17}}) {
    const auto [m, n, k] = sizes;
    const TestTensor x_MK = TestTensor::Random(dtype(), m, k, 1);
    const TestTensor y_MN = TestTensor::Random(dtype(), m, n, 2);
    const TestTensor old_NK = TestTensor::Random(dtype(), n, k, 3);
    const TestTensor new_NK = TestTensor::Random(dtype(), n, k, 4);
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const TestTensor w = old_NK;
      std::vector<TestTensor> outputs;
      for (const TestTensor& weights : {old_NK, new_NK}) {
        ops.Copy(weights.matrix(), w.matrix());
        ops.WeightsChanged();
        for (int again = 0; again < 2; ++again) {
          const TestTensor y(kF32, m, n), x(kF32, m, k);
          ops.Matmul({.a = x_MK.matrix(),
                      .b = w.matrix(),
                      .c = y.matrix(),
                      .transpose_b = true,
                      .b_is_weight = true,
                      .keep_b = true});
          ops.Matmul({.a = y_MN.matrix(),
                      .b = w.matrix(),
                      .c = x.matrix(),
                      .b_is_weight = true,
                      .keep_b = true});
          outputs.insert(outputs.end(), {y, x});
        }
      }
      return outputs;
    });
    for (size_t i = 0; i < 8; i += 2) {
      const Values w = (i < 4 ? old_NK : new_NK).values();
      ExpectClose(Op::kMatmul, out[i], reference::Matmul(x_MK.values(), w, {m, n, k, false, true}),
                  "forward");
      ExpectClose(Op::kMatmul, out[i + 1],
                  reference::Matmul(y_MN.values(), w, {m, k, n, false, false}), "backward");
    }
  }
}

TEST_P(MatmulTest, NonFiniteNumbersReachTheirRowAlone) {
  for (const double bad :
       {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    TestTensor a = TestTensor::Random(dtype(), 37, 19, 1);
    a.Set(36, 18, bad);
    const TestTensor b = TestTensor::Random(dtype(), 23, 19, 2);
    for (const DType out_type : {kF32, dtype()}) {
      const std::vector<TestTensor> out = Run([&](Ops& ops) {
        const TestTensor c(out_type, 37, 23);
        ops.Matmul({.a = a.matrix(), .b = b.matrix(), .c = c.matrix(), .transpose_b = true});
        return std::vector{c};
      });
      for (int64_t r = 0; r < 37; ++r) {
        for (int64_t c = 0; c < 23; ++c) {
          EXPECT_EQ(std::isfinite(out[0].At(r, c)), r != 36) << r << ", " << c;
        }
      }
    }
  }
}

// With the largest value in place the tensor's scale is 1 and the others are powers of two: the
// reference in double rounds exactly alike. model/fp8's own tests have the other scales.
TEST_P(MatmulTest, QuantizeEqualsTheReferenceInEveryUnit) {
  for (const ScaleUnit unit :
       {ScaleUnit::kTensor, ScaleUnit::kPerRow, ScaleUnit::kPerColumn, ScaleUnit::kRow1x128,
        ScaleUnit::kCol128x1, ScaleUnit::kBlock128x128}) {
    for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
      for (const DType to : {kF32, kBF16}) {
        TestTensor x = TestTensor::Random(dtype(), 131, 150, 3, 2);
        x.Set(0, 0, Fp8Max(format));
        const QuantizeSpec spec = {format, unit, unit != ScaleUnit::kTensor};
        const std::vector<TestTensor> out = Run([&](Ops& ops) {
          const TestTensor y(to, 131, 150, 6);
          const Quantized result = ops.Quantize({spec, x.matrix(), y.matrix()});
          EXPECT_EQ(result.amax, Fp8Max(format));
          EXPECT_EQ(result.dequant, 1);
          return std::vector{y};
        });
        EXPECT_EQ(out[0].values(), reference::Quantize(spec, x.values(), 131, 150));
        EXPECT_TRUE(out[0].guards_intact());
      }
    }
  }
}

// A part of a matrix that is split over ranks, with the amax of the whole one's groups.
TEST_P(MatmulTest, QuantizesAPartByTheAmaxOfTheWhole) {
  const int64_t rows = 140, columns = 260;
  const TestTensor x = TestTensor::Random(dtype(), rows, columns, 3, 2);
  for (const ScaleUnit unit : {ScaleUnit::kTensor, ScaleUnit::kPerRow, ScaleUnit::kPerColumn}) {
    const QuantizeSpec spec = {Fp8Format::kE4M3, unit, unit != ScaleUnit::kTensor};
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const int64_t groups = NumScales(unit, rows, columns);
      const TestTensor whole(kBF16, rows, columns), parts(kBF16, rows, columns);
      const TestTensor amax(kF32, 1, groups);
      ops.Amax({unit, x.matrix(), amax.vector()});
      const Quantized want = ops.Quantize({.spec = spec, .from = x.matrix(), .to = whole.matrix()});
      for (const bool by_rows : {false, true}) {
        const int64_t cut = by_rows ? 57 : 101, end = by_rows ? rows : columns;
        for (const auto& [first, last] : {std::pair{int64_t{0}, cut}, {cut, end}}) {
          const auto part = [&](const Tensor& whole_matrix) {
            return by_rows ? whole_matrix.Rows(first, last) : whole_matrix.Columns(first, last);
          };
          const bool own_groups = unit == (by_rows ? ScaleUnit::kPerRow : ScaleUnit::kPerColumn);
          const Quantized got =
              ops.Quantize({.spec = spec,
                            .from = part(x.matrix()),
                            .to = part(parts.matrix()),
                            .amax = own_groups ? amax.vector().Rows(first, last) : amax.vector()});
          EXPECT_EQ(got.dequant, want.dequant);
          if (!own_groups) {
            EXPECT_EQ(got.amax, want.amax);
          }
        }
        EXPECT_EQ(parts.bytes(), whole.bytes()) << static_cast<int>(unit) << by_rows;
        ops.Zero(parts.vector());
      }
      return std::vector{whole, amax};
    });
    // The largest of each group, which is exact.
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t group = unit == ScaleUnit::kTensor   ? 0
                            : unit == ScaleUnit::kPerRow ? i / columns
                                                         : i % columns;
      EXPECT_LE(std::fabs(x.At(i / columns, i % columns)), out[1].At(0, group));
    }
  }
}

}  // namespace
}  // namespace cria::model
