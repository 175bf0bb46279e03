// Precision: which numbers a training step computes with.
//
//   name             GEMM operands                          stored activations
//   fp32             fp32                                   fp32
//   bf16             bf16                                   bf16
//   fp8_tensorwise   E4M3 / E5M2, one scale a tensor, now   bf16
//   fp8_delayed      E4M3 / E5M2, scale from a history      bf16
//   fp8_rowwise      E4M3, one scale a row                  bf16
//   fp8_blockwise    E4M3, 1x128 and 128x128 scales         bf16
//
// In each, sums, norms, softmax, losses, residuals, weight gradients, master weights and optimizer
// state are fp32; embedding and head are kept out of FP8. Thread-safe as values are.

#ifndef CRIA_MODEL_PRECISION_H_
#define CRIA_MODEL_PRECISION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/fp8/recipe.h"
#include "model/tensor.h"

namespace cria::model {

enum class Precision {
  kFp32,
  kBf16,
  kFp8Tensorwise,
  kFp8Delayed,
  kFp8Rowwise,
  kFp8Blockwise,
};

const char* PrecisionName(Precision precision);
// Empty for an unknown name.
std::optional<Precision> PrecisionFromName(std::string_view name);
std::vector<std::string> PrecisionNames();

bool IsFp8(Precision precision);
// The recipe of an FP8 precision; empty for fp32 and bf16.
std::optional<Fp8Recipe> RecipeOf(Precision precision);
// The type of stored activations and of unquantised GEMM operands.
DType ComputeType(Precision precision);

}  // namespace cria::model

#endif  // CRIA_MODEL_PRECISION_H_
