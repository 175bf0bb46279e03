// Quantised matrices: all recipes' units and all instruction sets of this machine, bit for bit
// against the scalar code of formats.h, and the inputs that users' bug reports are about.

#include "model/fp8/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.h"
#include "base/parallel.h"
#include "model/fp8/quantize_kernels.h"
#include "model/fp8/scale.h"

namespace cria::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr ScaleUnit kUnits[] = {ScaleUnit::kTensor,    ScaleUnit::kPerRow,
                                ScaleUnit::kPerColumn, ScaleUnit::kRow1x128,
                                ScaleUnit::kCol128x1,  ScaleUnit::kBlock128x128};

std::vector<Isa> IsasOfThisMachine() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (isa <= ActiveIsa()) isas.push_back(isa);
  }
  return isas;
}

QuantizeSpec SpecOf(Fp8Format format, ScaleUnit unit) {
  return {format, unit, unit != ScaleUnit::kTensor};
}

float FromBF16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Magnitudes over ten powers of two, both signs, a function of (seed, i) alone.
float Sample(uint32_t seed, int64_t i) {
  uint64_t z = (static_cast<uint64_t>(seed) << 32) + static_cast<uint64_t>(i);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  z ^= z >> 31;
  const float mantissa = 1.0f + static_cast<float>(z & 0x7FFFFF) * 0x1p-23f;
  const float magnitude = std::ldexp(mantissa, static_cast<int>(z >> 24 & 0xF) - 12);
  return (z >> 40 & 1) != 0 ? -magnitude : magnitude;
}

struct Matrix {
  Matrix(int64_t rows, int64_t cols, ElementType type, int64_t padding = 0)
      : rows(rows), cols(cols), stride(cols + padding), type(type) {
    f32.resize(static_cast<size_t>(rows * stride));
    bf16.resize(f32.size());
  }
  static Matrix Random(int64_t rows, int64_t cols, ElementType type, uint32_t seed,
                       int64_t padding = 3) {
    Matrix m(rows, cols, type, padding);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) m.Set(r, c, Sample(seed, r * cols + c));
    }
    return m;
  }
  void Set(int64_t r, int64_t c, float x) {
    f32[r * stride + c] = x;
    bf16[r * stride + c] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  }
  // The element as its type holds it.
  float At(int64_t r, int64_t c) const {
    return type == ElementType::kF32 ? f32[r * stride + c] : FromBF16(bf16[r * stride + c]);
  }
  void* data() {
    return type == ElementType::kF32 ? static_cast<void*>(f32.data())
                                     : static_cast<void*>(bf16.data());
  }
  QuantizeInput AsInput() { return {data(), type, rows, cols, stride}; }
  QuantizeOutput AsOutput() { return {data(), type, stride}; }

  int64_t rows, cols, stride;
  ElementType type;
  std::vector<float> f32;
  std::vector<uint16_t> bf16;
};

// Which scale element (r, c) uses.
int64_t ScaleIndex(ScaleUnit unit, int64_t r, int64_t c, int64_t cols) {
  const int64_t col_blocks = (cols + 127) / 128;
  switch (unit) {
    case ScaleUnit::kTensor:
      return 0;
    case ScaleUnit::kPerRow:
      return r;
    case ScaleUnit::kPerColumn:
      return c;
    case ScaleUnit::kRow1x128:
      return r * col_blocks + c / 128;
    case ScaleUnit::kCol128x1:
      return r / 128 * cols + c;
    case ScaleUnit::kBlock128x128:
      return r / 128 * col_blocks + c / 128;
  }
  return -1;
}

struct Expected {
  std::vector<float> scales;
  float amax = 0;
  float dequant = 1;
};

// The scales by the definition: group, take the amax, apply the rule.
Expected ScalesByDefinition(const QuantizeSpec& spec, const Matrix& in) {
  std::vector<float> amax(static_cast<size_t>(NumScales(spec.unit, in.rows, in.cols)));
  Expected expected;
  const auto raise = [](float* to, float x) {
    if (std::isnan(x) || std::isnan(*to)) {
      *to = kNaN;
    } else {
      *to = std::max(*to, std::fabs(x));
    }
  };
  for (int64_t r = 0; r < in.rows; ++r) {
    for (int64_t c = 0; c < in.cols; ++c) {
      raise(&amax[ScaleIndex(spec.unit, r, c, in.cols)], in.At(r, c));
      raise(&expected.amax, in.At(r, c));
    }
  }
  for (const float a : amax) {
    expected.scales.push_back(spec.unit == ScaleUnit::kTensor ? CurrentScale(spec.format, a)
                                                              : PowerOfTwoScale(spec.format, a));
  }
  if (spec.unit == ScaleUnit::kTensor) expected.dequant = 1 / expected.scales[0];
  return expected;
}

bool SameFloat(float got, float want) {
  if (std::isnan(want)) return std::isnan(got);
  return std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want);
}

// Quantises by one instruction set and compares values, codes, scales, amax with the definition.
void Check(const QuantizeSpec& spec, Matrix in, ElementType out_type, Isa isa) {
  const Expected expected = ScalesByDefinition(spec, in);
  Matrix out(in.rows, in.cols, out_type, 5);
  const int64_t codes_stride = in.cols + 7;
  std::vector<uint8_t> codes(static_cast<size_t>(in.rows * codes_stride));
  std::vector<float> dequant_scales(expected.scales.size(), -1.0f);
  const QuantizeResult result =
      fp8_internal::QuantizeWith(fp8_internal::KernelsFor(isa), spec, in.AsInput(), out.AsOutput(),
                                 {.codes = codes.data(),
                                  .codes_row_stride = codes_stride,
                                  .dequant_scales = dequant_scales.data()});
  ASSERT_TRUE(SameFloat(result.amax, expected.amax)) << result.amax;
  ASSERT_EQ(result.dequant, expected.dequant);
  for (size_t i = 0; i < expected.scales.size(); ++i) {
    ASSERT_EQ(dequant_scales[i], 1 / expected.scales[i]) << "scale " << i;
  }
  for (int64_t r = 0; r < in.rows; ++r) {
    for (int64_t c = 0; c < in.cols; ++c) {
      const float scale = expected.scales[ScaleIndex(spec.unit, r, c, in.cols)];
      const uint8_t code = EncodeFp8(spec.format, in.At(r, c) * scale, Saturate::kFinite);
      const float fold = spec.unit == ScaleUnit::kTensor ? 1 : 1 / scale;
      const float value = DecodeFp8(spec.format, code) * fold;
      ASSERT_TRUE(codes[r * codes_stride + c] == code && SameFloat(out.At(r, c), value))
          << IsaName(isa) << ", unit " << static_cast<int>(spec.unit) << ", [" << r << ", " << c
          << "] of " << in.rows << " x " << in.cols << ": " << in.At(r, c) << " became code "
          << static_cast<int>(codes[r * codes_stride + c]) << ", value " << out.At(r, c)
          << " and not " << static_cast<int>(code) << ", " << value;
    }
  }
}

void CheckAllWays(const Matrix& in) {
  for (const Isa isa : IsasOfThisMachine()) {
    for (const ScaleUnit unit : kUnits) {
      for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
        for (const ElementType out_type : {ElementType::kF32, ElementType::kBF16}) {
          Check(SpecOf(format, unit), in, out_type, isa);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

struct Shape {
  int64_t rows, cols;
};

class QuantizeShapeTest : public testing::TestWithParam<Shape> {};

TEST_P(QuantizeShapeTest, EqualsTheDefinitionInEveryUnitTypeAndInstructionSet) {
  const auto [rows, cols] = GetParam();
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    CheckAllWays(Matrix::Random(rows, cols, type, 7));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, QuantizeShapeTest,
                         testing::Values(Shape{1, 1}, Shape{1, 129}, Shape{3, 5}, Shape{127, 63},
                                         Shape{128, 128}, Shape{129, 257}, Shape{300, 1},
                                         Shape{2, 17000}, Shape{261, 96}),
                         [](const testing::TestParamInfo<Shape>& info) {
                           return std::to_string(info.param.rows) + "x" +
                                  std::to_string(info.param.cols);
                         });

// Every bf16 number there is, through the vectorised rounding with a scale of one: infinities, NaN,
// subnormals and both zeros are among them.
TEST(QuantizeTest, RoundsEveryBf16NumberAsTheScalarCodeDoes) {
  Matrix all(1, 65536, ElementType::kBF16);
  for (uint32_t bits = 0; bits < 65536; ++bits) all.bf16[bits] = static_cast<uint16_t>(bits);
  for (const Isa isa : IsasOfThisMachine()) {
    for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
      Matrix out(1, 65536, ElementType::kBF16);
      std::vector<uint8_t> codes(65536);
      const QuantizeResult result = fp8_internal::QuantizeWith(
          fp8_internal::KernelsFor(isa), {format, ScaleUnit::kTensor, false}, all.AsInput(),
          out.AsOutput(), {.fixed_scale = 1, .codes = codes.data(), .codes_row_stride = 65536});
      EXPECT_TRUE(std::isnan(result.amax));
      for (uint32_t bits = 0; bits < 65536; ++bits) {
        const uint8_t code = EncodeFp8(format, all.At(0, bits), Saturate::kFinite);
        ASSERT_EQ(codes[bits], code) << IsaName(isa) << " " << std::hex << bits;
        ASSERT_TRUE(SameFloat(out.At(0, bits), DecodeFp8(format, code))) << std::hex << bits;
      }
    }
  }
}

// Floats that no bf16 number holds: next to every tie, and a walk over all of them.
TEST(QuantizeTest, RoundsFloatsAsTheScalarCodeDoes) {
  Matrix x(1, 0, ElementType::kF32);
  for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
    for (int code = 0; code < 0x7B; ++code) {
      const float middle = (DecodeFp8(format, static_cast<uint8_t>(code)) +
                            DecodeFp8(format, static_cast<uint8_t>(code + 1))) /
                           2;
      for (const float y : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
        x.f32.push_back(y);
        x.f32.push_back(-y);
      }
    }
  }
  for (uint64_t bits = 0; bits < 1ull << 32; bits += 16001) {
    x.f32.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  x.cols = x.stride = static_cast<int64_t>(x.f32.size());
  for (const Isa isa : IsasOfThisMachine()) {
    for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
      Matrix out(1, x.cols, ElementType::kF32);
      fp8_internal::QuantizeWith(fp8_internal::KernelsFor(isa), {format, ScaleUnit::kTensor, false},
                                 x.AsInput(), out.AsOutput(), {.fixed_scale = 1});
      for (int64_t i = 0; i < x.cols; ++i) {
        const uint8_t code = EncodeFp8(format, x.f32[i], Saturate::kFinite);
        ASSERT_TRUE(SameFloat(out.f32[i], DecodeFp8(format, code)))
            << IsaName(isa) << " " << x.f32[i] << " became " << out.f32[i];
      }
    }
  }
}

// A row of padding was all zero, its scale 448 / 0, its values NaN, and so was the loss.
TEST(QuantizeTest, GivesZerosNotNaNWhenRowsColumnsOrAllAreZero) {
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    Matrix zeros(130, 131, type);
    CheckAllWays(zeros);
    zeros.Set(0, 0, -0.0f);
    CheckAllWays(zeros);
    Matrix holes = Matrix::Random(130, 131, type, 11);
    for (int64_t i = 0; i < 131; ++i) holes.Set(5, i, 0);
    for (int64_t i = 0; i < 130; ++i) holes.Set(i, 7, 0);
    CheckAllWays(holes);
    for (const ScaleUnit unit : kUnits) {
      Matrix out(130, 131, ElementType::kF32);
      const QuantizeResult result =
          Quantize(SpecOf(Fp8Format::kE4M3, unit), zeros.AsInput(), out.AsOutput());
      EXPECT_EQ(result.amax, 0);
      EXPECT_EQ(result.dequant, 1);
      for (const float x : out.f32) ASSERT_EQ(x, 0);
    }
  }
}

TEST(QuantizeTest, KeepsASingleNonzeroExactlyWhenItIsAPowerOfTwo) {
  for (const float x : {1.0f, -0x1p-30f, 0x1p30f, 0x1p-100f, -0x1p100f}) {
    Matrix one(140, 140, ElementType::kF32);
    one.Set(133, 131, x);
    CheckAllWays(one);
    for (const ScaleUnit unit : kUnits) {
      Matrix out(140, 140, ElementType::kF32);
      const QuantizeResult result =
          Quantize(SpecOf(Fp8Format::kE4M3, unit), one.AsInput(), out.AsOutput());
      EXPECT_EQ(result.amax, std::fabs(x));
      EXPECT_FLOAT_EQ(out.At(133, 131) * result.dequant, x);
    }
  }
}

TEST(QuantizeTest, HandlesDenormalAndHugeBlocks) {
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    for (const float factor : {0x1p-126f, 0x1p-135f, 0x1p120f, 0x1p123f}) {
      Matrix m = Matrix::Random(129, 130, type, 5);
      for (int64_t r = 0; r < m.rows; ++r) {
        for (int64_t c = 0; c < m.cols; ++c) m.Set(r, c, m.At(r, c) * factor);
      }
      CheckAllWays(m);
    }
  }
}

// Saturation turns an infinity into an ordinary number: amax is where it must show.
TEST(QuantizeTest, ReportsInfinityAndNaNInAmaxAndSpoilsNoOtherGroup) {
  for (const float bad : {kInfinity, -kInfinity, kNaN}) {
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
      Matrix m = Matrix::Random(200, 200, type, 3);
      m.Set(150, 20, bad);
      CheckAllWays(m);
      for (const ScaleUnit unit : kUnits) {
        Matrix out(200, 200, ElementType::kF32);
        const QuantizeResult result =
            Quantize(SpecOf(Fp8Format::kE5M2, unit), m.AsInput(), out.AsOutput());
        EXPECT_FALSE(std::isfinite(result.amax));
        EXPECT_EQ(std::isnan(out.At(150, 20)), std::isnan(bad));
        EXPECT_TRUE(std::isfinite(out.At(10, 190)));
      }
    }
  }
}

TEST(QuantizeTest, SaturatesWhenTheFixedScaleIsTooLarge) {
  Matrix m(1, 3, ElementType::kF32);
  m.f32 = {100, -0.5f, 1};
  Matrix out(1, 3, ElementType::kBF16);
  const QuantizeResult result = Quantize({Fp8Format::kE4M3, ScaleUnit::kTensor, false}, m.AsInput(),
                                         out.AsOutput(), {.fixed_scale = 64});
  EXPECT_EQ(out.At(0, 0), 448);
  EXPECT_EQ(out.At(0, 1), -32);
  EXPECT_EQ(out.At(0, 2), 64);
  EXPECT_EQ(result.dequant, 1.0f / 64);
  EXPECT_EQ(result.amax, 100);
}

// A rank whose shard is empty took the maximum of nothing and crashed.
TEST(QuantizeTest, ReturnsZeroAmaxWhenTheMatrixIsEmpty) {
  for (const ScaleUnit unit : kUnits) {
    for (const Shape shape : {Shape{0, 0}, Shape{0, 128}, Shape{128, 0}}) {
      const QuantizeResult result =
          Quantize(SpecOf(Fp8Format::kE4M3, unit),
                   {nullptr, ElementType::kF32, shape.rows, shape.cols, shape.cols}, {});
      EXPECT_EQ(result.amax, 0);
      EXPECT_EQ(result.dequant, 1);
    }
  }
  EXPECT_EQ(Amax({nullptr, ElementType::kBF16, 0, 7, 7}), 0);
}

TEST(QuantizeTest, GivesTheSameBitsForAnyNumberOfThreads) {
  const int num_threads = NumThreads();
  for (const ScaleUnit unit : kUnits) {
    Matrix m = Matrix::Random(301, 415, ElementType::kF32, 23);
    Matrix one(301, 415, ElementType::kBF16);
    Matrix three(301, 415, ElementType::kBF16);
    SetNumThreads(1);
    const QuantizeResult a = Quantize(SpecOf(Fp8Format::kE4M3, unit), m.AsInput(), one.AsOutput());
    SetNumThreads(3);
    const QuantizeResult b =
        Quantize(SpecOf(Fp8Format::kE4M3, unit), m.AsInput(), three.AsOutput());
    EXPECT_EQ(one.bf16, three.bf16);
    EXPECT_EQ(a.amax, b.amax);
    EXPECT_EQ(a.dequant, b.dequant);
  }
  SetNumThreads(num_threads);
}

TEST(QuantizeTest, WorksInPlace) {
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    for (const ScaleUnit unit : kUnits) {
      Matrix m = Matrix::Random(130, 300, type, 31);
      Matrix out(130, 300, type, 3);
      const QuantizeSpec spec = SpecOf(Fp8Format::kE4M3, unit);
      Quantize(spec, m.AsInput(), out.AsOutput());
      std::vector<uint8_t> codes(130 * 300);
      Quantize(spec, m.AsInput(), m.AsOutput(), {.codes = codes.data(), .codes_row_stride = 300});
      for (int64_t r = 0; r < m.rows; ++r) {
        for (int64_t c = 0; c < m.cols; ++c) ASSERT_EQ(m.At(r, c), out.At(r, c));
      }
      EXPECT_NE(codes[0], 0);
    }
  }
}

TEST(QuantizeTest, TouchesNothingBetweenRows) {
  Matrix m = Matrix::Random(9, 33, ElementType::kF32, 2);
  Matrix out(9, 33, ElementType::kF32, 4);
  std::fill(out.f32.begin(), out.f32.end(), 1234.5f);
  Quantize(SpecOf(Fp8Format::kE4M3, ScaleUnit::kTensor), m.AsInput(), out.AsOutput());
  for (int64_t r = 0; r < 9; ++r) {
    for (int64_t c = 33; c < 37; ++c) EXPECT_EQ(out.f32[r * 37 + c], 1234.5f);
  }
}

// Blocks that survive a transpose: quantising w^T equals transposing the quantised w. Rows and
// columns are each other's transpose.
TEST(QuantizeTest, IsItsTransposeInTheTransposedUnit) {
  const std::pair<ScaleUnit, ScaleUnit> pairs[] = {
      {ScaleUnit::kTensor, ScaleUnit::kTensor},
      {ScaleUnit::kBlock128x128, ScaleUnit::kBlock128x128},
      {ScaleUnit::kPerRow, ScaleUnit::kPerColumn},
      {ScaleUnit::kRow1x128, ScaleUnit::kCol128x1}};
  for (const auto& [unit, transposed_unit] : pairs) {
    Matrix m = Matrix::Random(150, 270, ElementType::kF32, 41);
    Matrix t(270, 150, ElementType::kF32);
    for (int64_t r = 0; r < 150; ++r) {
      for (int64_t c = 0; c < 270; ++c) t.Set(c, r, m.At(r, c));
    }
    Matrix m_out(150, 270, ElementType::kF32);
    Matrix t_out(270, 150, ElementType::kF32);
    Quantize(SpecOf(Fp8Format::kE4M3, unit), m.AsInput(), m_out.AsOutput());
    Quantize(SpecOf(Fp8Format::kE4M3, transposed_unit), t.AsInput(), t_out.AsOutput());
    for (int64_t r = 0; r < 150; ++r) {
      for (int64_t c = 0; c < 270; ++c) ASSERT_EQ(m_out.At(r, c), t_out.At(c, r));
    }
  }
}

// Tensor parallelism took amax of a rank's own view and the gradients grew to NaN. The amax of the
// shards together is the tensor's, and shards quantised by its scale are the tensor quantised.
TEST(QuantizeTest, EqualsTheWholeTensorWhenShardsShareTheReducedAmax) {
  for (const int64_t world : {3, 5, 7, 200}) {  // uneven; more ranks than rows
    const int64_t rows = 130;
    const int64_t cols = 75;
    Matrix whole = Matrix::Random(rows, cols, ElementType::kF32, 57, 0);
    const QuantizeSpec spec = {Fp8Format::kE4M3, ScaleUnit::kTensor, false};
    Matrix want(rows, cols, ElementType::kBF16);
    const QuantizeResult whole_result = Quantize(spec, whole.AsInput(), want.AsOutput());
    const int64_t shard_rows = (rows + world - 1) / world;
    const auto shard = [&](int64_t rank) {
      const int64_t begin = std::min(rank * shard_rows, rows);
      const int64_t end = std::min(begin + shard_rows, rows);
      return QuantizeInput{whole.f32.data() + begin * cols, ElementType::kF32, end - begin, cols,
                           cols};
    };
    float amax = 0;
    for (int64_t rank = 0; rank < world; ++rank) amax = std::max(amax, Amax(shard(rank)));
    EXPECT_EQ(amax, whole_result.amax);
    Matrix got(rows, cols, ElementType::kBF16);
    for (int64_t rank = 0; rank < world; ++rank) {
      const int64_t begin = std::min(rank * shard_rows, rows);
      const QuantizeResult result =
          Quantize(spec, shard(rank), {got.bf16.data() + begin * cols, ElementType::kBF16, cols},
                   {.fixed_scale = CurrentScale(spec.format, amax)});
      EXPECT_EQ(result.dequant, whole_result.dequant);
    }
    EXPECT_EQ(got.bf16, want.bf16);
  }
}

// What ranks exchange: the amax of each group, of a matrix in parts the largest of the parts'. Then
// each part is quantised as a cut out of the whole one is.
TEST(QuantizeTest, PartsWithTheAmaxOfTheWholesGroupsEqualTheWhole) {
  const int64_t rows = 300, cols = 400;
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    Matrix whole = Matrix::Random(rows, cols, type, 71);
    whole.Set(3, 200, kInfinity);
    whole.Set(290, 5, kNaN);
    for (const ScaleUnit unit : kUnits) {
      const QuantizeSpec spec = SpecOf(Fp8Format::kE4M3, unit);
      Matrix want(rows, cols, ElementType::kF32);
      Quantize(spec, whole.AsInput(), want.AsOutput());
      std::vector<float> amax(static_cast<size_t>(NumScales(unit, rows, cols)));
      GroupAmax(unit, whole.AsInput(), amax.data());
      // By definition.
      std::vector<float> largest(amax.size(), 0.0f);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          float& group = largest[ScaleIndex(unit, r, c, cols)];
          const float x = std::fabs(whole.At(r, c));
          if (!std::isnan(group)) group = std::isnan(x) ? x : std::max(group, x);
        }
      }
      for (size_t i = 0; i < amax.size(); ++i) {
        ASSERT_TRUE(std::isnan(largest[i]) ? std::isnan(amax[i]) : amax[i] == largest[i]) << i;
      }
      // Cuts anywhere but through blocks.
      const bool blocks = unit >= ScaleUnit::kRow1x128;
      const int64_t row_cut = blocks ? 128 : 77, col_cut = blocks ? 256 : 301;
      Matrix got(rows, cols, ElementType::kF32);
      for (const int64_t row : {int64_t{0}, row_cut}) {
        for (const int64_t col : {int64_t{0}, col_cut}) {
          const int64_t part_rows = row == 0 ? row_cut : rows - row;
          const int64_t part_cols = col == 0 ? col_cut : cols - col;
          std::vector<float> part_amax(static_cast<size_t>(NumScales(unit, part_rows, part_cols)));
          for (int64_t r = 0; r < part_rows; ++r) {
            for (int64_t c = 0; c < part_cols; ++c) {
              part_amax[ScaleIndex(unit, r, c, part_cols)] =
                  amax[ScaleIndex(unit, row + r, col + c, cols)];
            }
          }
          const int64_t bytes = type == ElementType::kF32 ? 4 : 2;
          const int64_t at = row * whole.stride + col;
          Quantize(spec,
                   {static_cast<char*>(whole.data()) + at * bytes, type, part_rows, part_cols,
                    whole.stride},
                   {got.f32.data() + row * cols + col, ElementType::kF32, cols},
                   {.amax = part_amax.data()});
        }
      }
      for (size_t i = 0; i < got.f32.size(); ++i) {
        ASSERT_TRUE(SameFloat(got.f32[i], want.f32[i])) << static_cast<int>(unit) << " at " << i;
      }
    }
  }
}

TEST(QuantizeTest, GroupsOfNothingHaveAmaxZero) {
  for (const ScaleUnit unit : kUnits) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{0, 5}, {5, 0}, {0, 0}}) {
      Matrix empty(rows, cols, ElementType::kF32);
      std::vector<float> amax(static_cast<size_t>(NumScales(unit, rows, cols)), -1.0f);
      GroupAmax(unit, empty.AsInput(), amax.data());
      EXPECT_EQ(amax, std::vector<float>(amax.size(), 0.0f));
      const QuantizeResult result = Quantize(SpecOf(Fp8Format::kE4M3, unit), empty.AsInput(),
                                             empty.AsOutput(), {.amax = amax.data()});
      EXPECT_EQ(result.dequant, 1);
    }
  }
}

}  // namespace
}  // namespace cria::model
