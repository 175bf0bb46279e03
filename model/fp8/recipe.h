// Which numbers become 8 bits wide, and how: four recipes for the three GEMMs of a linear layer.
//
//   const GemmRecipe fprop = GemmRecipeOf(Fp8Recipe::kRowwise, Gemm::kFprop);
//   Quantize(fprop.left, x, ...);   Quantize(fprop.right, w, ...);   // then y = x w^T
//
// A linear layer y = x w^T with x [R,K], w [N,K], y [R,N] runs
//
//   GEMM     product           sums over     left operand    right operand
//   fprop    y  = x  w^T       K             x  (columns)    w  (columns)
//   dgrad    dx = dy w         N             dy (columns)    w  (rows)
//   wgrad    dw = dy^T x       R             dy (rows)       x  (rows)
//
// and every group of numbers that shares a scale must lie along the summed dimension (in brackets:
// which one of the operand as stored), or be square:
//
//   recipe            x, w    dy      scale of ...                                   scale is
//   fp8_tensorwise    E4M3    E5M2    a tensor, from this step's amax                max / amax
//   fp8_delayed       E4M3    E5M2    a tensor, from earlier steps' amax             max / amax
//   fp8_rowwise       E4M3    E4M3    a row (or column) along the sum                2^k
//   fp8_blockwise     E4M3    E4M3    128 numbers along the sum; w: 128 x 128        2^k
//
// A tensorwise operand serves both of its GEMMs (the specs compare equal); a rowwise or 1x128 one
// covers other numbers in each direction and is quantised twice from the high-precision source;
// 128 x 128 blocks survive a transpose. Embedding, output head, norms and attention stay out of
// 8 bits; so do master weights, weight gradients and the optimizer's state.
//
// Accumulation: the CPU sums in fp32 throughout. On GPUs whose 8-bit sums are short of bits, fprop
// may accumulate fast and dgrad, wgrad accumulate precisely; blockwise always precisely.
// Sources: TransformerEngine's DelayedScaling, Float8CurrentScaling and Float8BlockScaling;
// torchao's rowwise; DeepSeek-V3 (arXiv 2412.19437, 3.3). Thread-safe: constants.

#ifndef CRIA_MODEL_FP8_RECIPE_H_
#define CRIA_MODEL_FP8_RECIPE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "model/fp8/formats.h"

namespace cria::model {

inline constexpr int64_t kFp8BlockSize = 128;

enum class Fp8Recipe : uint8_t { kTensorwise, kDelayed, kRowwise, kBlockwise };
inline constexpr std::array kFp8Recipes = {Fp8Recipe::kTensorwise, Fp8Recipe::kDelayed,
                                           Fp8Recipe::kRowwise, Fp8Recipe::kBlockwise};

enum class Gemm : uint8_t { kFprop, kDgrad, kWgrad };

// Which numbers of a [rows, cols] matrix share a scale. Those along the columns of a row are
// kPerRow and kRow1x128; blocks at the edges are smaller.
enum class ScaleUnit : uint8_t {
  kTensor,
  kPerRow,
  kPerColumn,
  kRow1x128,
  kCol128x1,
  kBlock128x128,
};

// How one operand of one GEMM is quantised. Equal specs of one tensor give equal numbers.
struct QuantizeSpec {
  Fp8Format format = Fp8Format::kE4M3;
  ScaleUnit unit = ScaleUnit::kTensor;
  bool pow2_scale = false;  // required of every unit but kTensor

  friend constexpr bool operator==(const QuantizeSpec&, const QuantizeSpec&) = default;
};

struct GemmRecipe {
  QuantizeSpec left;  // as in the table above
  QuantizeSpec right;
  bool fast_accumulation = false;  // allowed on a GPU
};

// The recipe's own gradient format, or another for an experiment ("is E4M3 in the backward pass
// worse than the hybrid?"). E5M2 never meets E5M2, which GPUs refuse.
constexpr GemmRecipe GemmRecipeOf(Fp8Recipe recipe, Gemm gemm,
                                  std::optional<Fp8Format> grad_format = std::nullopt) {
  const bool is_blockwise = recipe == Fp8Recipe::kBlockwise;
  const bool is_per_tensor = recipe == Fp8Recipe::kTensorwise || recipe == Fp8Recipe::kDelayed;
  const Fp8Format grad = grad_format.value_or(is_per_tensor ? Fp8Format::kE5M2 : Fp8Format::kE4M3);
  const ScaleUnit along_row = is_per_tensor  ? ScaleUnit::kTensor
                              : is_blockwise ? ScaleUnit::kRow1x128
                                             : ScaleUnit::kPerRow;
  const ScaleUnit along_column = is_per_tensor  ? ScaleUnit::kTensor
                                 : is_blockwise ? ScaleUnit::kCol128x1
                                                : ScaleUnit::kPerColumn;
  const bool pow2 = !is_per_tensor;
  const auto weight = [&](ScaleUnit unit) {
    return QuantizeSpec{Fp8Format::kE4M3, is_blockwise ? ScaleUnit::kBlock128x128 : unit, pow2};
  };
  switch (gemm) {
    case Gemm::kFprop:
      return {{Fp8Format::kE4M3, along_row, pow2}, weight(along_row), !is_blockwise};
    case Gemm::kDgrad:
      return {{grad, along_row, pow2}, weight(along_column), false};
    case Gemm::kWgrad:
      return {{grad, along_column, pow2}, {Fp8Format::kE4M3, along_column, pow2}, false};
  }
  return {};
}

// "fp8_tensorwise": the names of precisions in configurations.
constexpr std::string_view Fp8RecipeName(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::kTensorwise:
      return "fp8_tensorwise";
    case Fp8Recipe::kDelayed:
      return "fp8_delayed";
    case Fp8Recipe::kRowwise:
      return "fp8_rowwise";
    case Fp8Recipe::kBlockwise:
      return "fp8_blockwise";
  }
  return "?";
}

// The recipe of that name; nothing where there is none.
constexpr std::optional<Fp8Recipe> ParseFp8Recipe(std::string_view name) {
  for (const Fp8Recipe recipe : kFp8Recipes) {
    if (name == Fp8RecipeName(recipe)) return recipe;
  }
  return std::nullopt;
}

}  // namespace cria::model

#endif  // CRIA_MODEL_FP8_RECIPE_H_
