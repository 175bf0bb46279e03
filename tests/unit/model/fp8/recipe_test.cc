// Each recipe's three GEMMs, on exact operands, against the same GEMM in double on what the
// recipe's definition says.

#include "model/fp8/recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "model/fp8/quantize.h"

namespace cria::model {
namespace {

// What the recipe table of the header says, written out once more by hand.
struct Row {
  Fp8Recipe recipe;
  Gemm gemm;
  QuantizeSpec left, right;
  bool fast;
};
constexpr auto kE4M3 = Fp8Format::kE4M3;
constexpr auto kE5M2 = Fp8Format::kE5M2;
constexpr Row kTable[] = {
    {Fp8Recipe::kTensorwise,
     Gemm::kFprop,
     {kE4M3, ScaleUnit::kTensor, false},
     {kE4M3, ScaleUnit::kTensor, false},
     true},
    {Fp8Recipe::kTensorwise,
     Gemm::kDgrad,
     {kE5M2, ScaleUnit::kTensor, false},
     {kE4M3, ScaleUnit::kTensor, false},
     false},
    {Fp8Recipe::kTensorwise,
     Gemm::kWgrad,
     {kE5M2, ScaleUnit::kTensor, false},
     {kE4M3, ScaleUnit::kTensor, false},
     false},
    {Fp8Recipe::kDelayed,
     Gemm::kFprop,
     {kE4M3, ScaleUnit::kTensor, false},
     {kE4M3, ScaleUnit::kTensor, false},
     true},
    {Fp8Recipe::kDelayed,
     Gemm::kDgrad,
     {kE5M2, ScaleUnit::kTensor, false},
     {kE4M3, ScaleUnit::kTensor, false},
     false},
    {Fp8Recipe::kDelayed,
     Gemm::kWgrad,
     {kE5M2, ScaleUnit::kTensor, false},
     {kE4M3, ScaleUnit::kTensor, false},
     false},
    {Fp8Recipe::kRowwise,
     Gemm::kFprop,
     {kE4M3, ScaleUnit::kPerRow, true},
     {kE4M3, ScaleUnit::kPerRow, true},
     true},
    {Fp8Recipe::kRowwise,
     Gemm::kDgrad,
     {kE4M3, ScaleUnit::kPerRow, true},
     {kE4M3, ScaleUnit::kPerColumn, true},
     false},
    {Fp8Recipe::kRowwise,
     Gemm::kWgrad,
     {kE4M3, ScaleUnit::kPerColumn, true},
     {kE4M3, ScaleUnit::kPerColumn, true},
     false},
    {Fp8Recipe::kBlockwise,
     Gemm::kFprop,
     {kE4M3, ScaleUnit::kRow1x128, true},
     {kE4M3, ScaleUnit::kBlock128x128, true},
     false},
    {Fp8Recipe::kBlockwise,
     Gemm::kDgrad,
     {kE4M3, ScaleUnit::kRow1x128, true},
     {kE4M3, ScaleUnit::kBlock128x128, true},
     false},
    {Fp8Recipe::kBlockwise,
     Gemm::kWgrad,
     {kE4M3, ScaleUnit::kCol128x1, true},
     {kE4M3, ScaleUnit::kCol128x1, true},
     false},
};

TEST(RecipeTest, IsTheTable) {
  for (const Row& row : kTable) {
    const GemmRecipe recipe = GemmRecipeOf(row.recipe, row.gemm);
    const std::string where = std::string(Fp8RecipeName(row.recipe)) + " GEMM " +
                              std::to_string(static_cast<int>(row.gemm));
    EXPECT_TRUE(recipe.left == row.left) << where;
    EXPECT_TRUE(recipe.right == row.right) << where;
    EXPECT_EQ(recipe.fast_accumulation, row.fast) << where;
  }
}

// E4M3 alone in the backward pass, or the hybrid: a switch, since users disagree about which is
// nearer to bf16.
TEST(RecipeTest, TakesAnotherGradientFormatWhenAsked) {
  for (const Fp8Recipe recipe : kFp8Recipes) {
    for (const Fp8Format format : {kE4M3, kE5M2}) {
      EXPECT_EQ(GemmRecipeOf(recipe, Gemm::kDgrad, format).left.format, format);
      EXPECT_EQ(GemmRecipeOf(recipe, Gemm::kWgrad, format).left.format, format);
      EXPECT_EQ(GemmRecipeOf(recipe, Gemm::kDgrad, format).right.format, kE4M3);
      EXPECT_EQ(GemmRecipeOf(recipe, Gemm::kWgrad, format).right.format, kE4M3);
      EXPECT_EQ(GemmRecipeOf(recipe, Gemm::kFprop, format).left.format, kE4M3);
    }
  }
}

TEST(RecipeTest, ParsesItsOwnNamesAndNoOther) {
  for (const Fp8Recipe recipe : kFp8Recipes) {
    EXPECT_EQ(ParseFp8Recipe(Fp8RecipeName(recipe)), recipe);
  }
  for (const char* name : {"", "fp8", "fp8_", "fp8_rowwise ", "FP8_ROWWISE", "bf16"}) {
    EXPECT_EQ(ParseFp8Recipe(name), std::nullopt) << name;
  }
}

struct Operand {
  int64_t rows, cols;
  std::vector<float> values;
};

// A matrix with outliers: one row and one column are 50 times larger.
Operand RandomOperand(int64_t rows, int64_t cols, uint64_t seed) {
  Operand m{rows, cols, {}};
  uint64_t state = seed;
  for (int64_t i = 0; i < rows * cols; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    float x = static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
    if (i / cols == rows / 2) x *= 50;
    if (i % cols == cols / 3) x *= 50;
    m.values.push_back(x);
  }
  return m;
}

// Position in the group's list of scales, by the definition.
int64_t GroupOf(ScaleUnit unit, int64_t r, int64_t c, int64_t cols) {
  switch (unit) {
    case ScaleUnit::kTensor:
      return 0;
    case ScaleUnit::kPerRow:
      return r;
    case ScaleUnit::kPerColumn:
      return c;
    case ScaleUnit::kRow1x128:
      return r * cols + c / 128;
    case ScaleUnit::kCol128x1:
      return r / 128 * cols + c;
    case ScaleUnit::kBlock128x128:
      return r / 128 * cols + c / 128;
  }
  return 0;
}

// The nearest number with `mantissa_bits` bits, not finer than min_subnormal; in double.
double NaiveRound(double x, int mantissa_bits, double min_normal, double max) {
  const double power = std::exp2(std::floor(std::log2(std::max(std::fabs(x), min_normal))));
  const double step = power / std::exp2(mantissa_bits);
  const double rounded = std::nearbyint(x / step) * step;
  return std::min(std::max(rounded, -max), max);
}

// Quantised and dequantised, in double throughout.
std::vector<double> NaiveDequantised(const QuantizeSpec& spec, const Operand& m) {
  const bool is_e4m3 = spec.format == kE4M3;
  const double max = is_e4m3 ? 448 : 57344;
  std::vector<double> amax(m.values.size());
  for (int64_t i = 0; i < m.rows * m.cols; ++i) {
    double& a = amax[GroupOf(spec.unit, i / m.cols, i % m.cols, m.cols)];
    a = std::max(a, std::fabs(static_cast<double>(m.values[i])));
  }
  std::vector<double> result;
  for (int64_t i = 0; i < m.rows * m.cols; ++i) {
    double scale = max / amax[GroupOf(spec.unit, i / m.cols, i % m.cols, m.cols)];
    if (spec.pow2_scale) scale = std::exp2(std::floor(std::log2(scale)));
    result.push_back(NaiveRound(m.values[i] * scale, is_e4m3 ? 3 : 2,
                                is_e4m3 ? std::exp2(-6) : std::exp2(-14), max) /
                     scale);
  }
  return result;
}

// sum_k left(i, k) right(j, k), where an operand stored the other way is read by columns.
template <typename T>
std::vector<double> Product(const std::vector<T>& left, bool left_by_columns, int64_t m,
                            const std::vector<T>& right, bool right_by_columns, int64_t n,
                            int64_t k) {
  std::vector<double> product;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += static_cast<double>(left_by_columns ? left[l * m + i] : left[i * k + l]) *
               static_cast<double>(right_by_columns ? right[l * n + j] : right[j * k + l]);
      }
      product.push_back(sum);
    }
  }
  return product;
}

std::vector<float> ExactOperand(const QuantizeSpec& spec, const Operand& m, float* dequant) {
  std::vector<uint16_t> out(m.values.size());
  *dequant *= Quantize(spec, {m.values.data(), ElementType::kF32, m.rows, m.cols, m.cols},
                       {out.data(), ElementType::kBF16, m.cols})
                  .dequant;
  std::vector<float> values;
  for (const uint16_t bits : out) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  }
  return values;
}

class RecipeGemmTest : public testing::TestWithParam<Fp8Recipe> {};

// Tokens (37) and features are no multiples of 16: nothing here needs them to be.
TEST_P(RecipeGemmTest, EqualsTheNaiveDefinitionInAllThreeGemms) {
  const int64_t tokens = 37, in = 133, out = 150;
  const Operand x = RandomOperand(tokens, in, 1);
  const Operand w = RandomOperand(out, in, 2);
  const Operand dy = RandomOperand(tokens, out, 3);
  const struct {
    Gemm gemm;
    const Operand* left;
    bool left_by_columns;
    int64_t m;
    const Operand* right;
    bool right_by_columns;
    int64_t n, k;
  } gemms[] = {{Gemm::kFprop, &x, false, tokens, &w, false, out, in},
               {Gemm::kDgrad, &dy, false, tokens, &w, true, in, out},
               {Gemm::kWgrad, &dy, true, out, &x, true, in, tokens}};
  for (const auto& g : gemms) {
    const GemmRecipe recipe = GemmRecipeOf(GetParam(), g.gemm);
    float dequant = 1;
    const std::vector<float> left = ExactOperand(recipe.left, *g.left, &dequant);
    const std::vector<float> right = ExactOperand(recipe.right, *g.right, &dequant);
    const std::vector<double> got =
        Product(left, g.left_by_columns, g.m, right, g.right_by_columns, g.n, g.k);
    const std::vector<double> want =
        Product(NaiveDequantised(recipe.left, *g.left), g.left_by_columns, g.m,
                NaiveDequantised(recipe.right, *g.right), g.right_by_columns, g.n, g.k);
    const std::vector<double> unquantised = Product(
        std::vector<double>(g.left->values.begin(), g.left->values.end()), g.left_by_columns, g.m,
        std::vector<double>(g.right->values.begin(), g.right->values.end()), g.right_by_columns,
        g.n, g.k);
    double error = 0, loss = 0, norm = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      error += std::pow(got[i] * dequant - want[i], 2);
      loss += std::pow(want[i] - unquantised[i], 2);
      norm += std::pow(unquantised[i], 2);
    }
    // Exact where scales are powers of two; else a value may lie so near a tie that the fp32
    // product x * scale lands on its other side.
    EXPECT_LE(std::sqrt(error / norm), recipe.left.pow2_scale ? 0 : 1e-3)
        << static_cast<int>(g.gemm);
    // And 8 bits lose what 8 bits must lose: a few per cent, not nothing, not all.
    EXPECT_GT(std::sqrt(loss / norm), 1e-3) << static_cast<int>(g.gemm);
    EXPECT_LT(std::sqrt(loss / norm), 0.08) << static_cast<int>(g.gemm);
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, RecipeGemmTest, testing::ValuesIn(kFp8Recipes),
                         [](const testing::TestParamInfo<Fp8Recipe>& info) {
                           return std::string(Fp8RecipeName(info.param));
                         });

}  // namespace
}  // namespace cria::model
