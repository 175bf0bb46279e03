// Quantises a matrix to 8 bits and gives back the values that the 8-bit GEMM sees: "exact
// operands".
//
//   QuantizeSpec spec = GemmRecipeOf(Fp8Recipe::kTensorwise, Gemm::kFprop).left;
//   QuantizeResult x = Quantize(spec, {x_data, ElementType::kF32, rows, cols, cols},
//                               {x8_data, ElementType::kBF16, cols});
//   // y = x.dequant * w.dequant * (x8 w8^T)
//
// Each value is rounded once: x -> fp32(x * scale) -> the nearest E4M3 or E5M2 number, saturating.
// The output holds these numbers as bf16 or fp32, both exact, so that any GEMM with fp32 sums
// computes what an 8-bit one computes. A tensor's scale is left to the caller (`dequant` = 1 /
// scale); scales of rows, columns and blocks are powers of two and are folded back into the values,
// exactly, so that `dequant` is 1 and the GEMM needs no scales at all.
//
// NaN stays NaN. Infinities saturate like any large number: look at `amax`, which is infinite or
// NaN when an element is. A group without a usable amax (all zero, or not finite) has scale 1.
//
// Results depend neither on the number of threads nor on the instruction set. Thread-safe; uses
// threads inside; allocates nothing but, once a thread, 12 bytes a column for kPerColumn. The
// output may be the input's own memory (same type and stride), nothing else may overlap. Cost: one
// read and one write of the matrix, and one more read for kTensor without a fixed scale and
// kPerColumn.

#ifndef CRIA_MODEL_FP8_QUANTIZE_H_
#define CRIA_MODEL_FP8_QUANTIZE_H_

#include <cstdint>

#include "model/fp8/recipe.h"

namespace cria::model {

enum class ElementType : uint8_t { kF32, kBF16 };

// Row-major; rows lie row_stride elements apart. Any size, zero included.
struct QuantizeInput {
  const void* data = nullptr;
  ElementType type = ElementType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t row_stride = 0;
};

// Of the input's shape. Null data: no values wanted (codes alone).
struct QuantizeOutput {
  void* data = nullptr;
  ElementType type = ElementType::kBF16;
  int64_t row_stride = 0;
};

struct QuantizeOptions {
  // kTensor only: the scale to use (delayed scaling, or one from an amax reduced over ranks);
  // 0 computes it from this matrix. amax is reported either way.
  float fixed_scale = 0;
  // The amax of each group, NumScales() of them in the order of dequant_scales, where the matrix is
  // a part of one with larger groups; null: from this matrix. The largest is then the result's
  // amax.
  const float* amax = nullptr;
  // The 8-bit codes as well, for storage and for comparing with a GPU, row-major [rows, cols]
  // codes_row_stride apart. Slower.
  uint8_t* codes = nullptr;
  int64_t codes_row_stride = 0;
  // The factors 1 / scale that turn codes into values: NumScales() of them, row-major (a tensor: 1;
  // rows; columns; blocks as [rows, ceil(cols/128)], [ceil(rows/128), cols] or both).
  float* dequant_scales = nullptr;
};

struct QuantizeResult {
  float dequant = 1;  // the GEMM's product is to be multiplied with this
  float amax = 0;     // largest |x|; infinite or NaN when an element is
};

QuantizeResult Quantize(const QuantizeSpec& spec, const QuantizeInput& in,
                        const QuantizeOutput& out, const QuantizeOptions& options = {});

// The largest |x|; NaN before infinity before finite numbers; 0 of an empty matrix.
float Amax(const QuantizeInput& in);

// The same of each group: amax[NumScales(unit, rows, cols)], in the order of dequant_scales.
void GroupAmax(ScaleUnit unit, const QuantizeInput& in, float* amax);

// The number of scales that a [rows, cols] matrix has.
int64_t NumScales(ScaleUnit unit, int64_t rows, int64_t cols);

}  // namespace cria::model

#endif  // CRIA_MODEL_FP8_QUANTIZE_H_
