#include "model/precision.h"

namespace cria::model {
namespace {

constexpr Precision kAll[] = {Precision::kFp32,          Precision::kBf16,
                              Precision::kFp8Tensorwise, Precision::kFp8Delayed,
                              Precision::kFp8Rowwise,    Precision::kFp8Blockwise};

}  // namespace

const char* PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp8Tensorwise:
      return "fp8_tensorwise";
    case Precision::kFp8Delayed:
      return "fp8_delayed";
    case Precision::kFp8Rowwise:
      return "fp8_rowwise";
    case Precision::kFp8Blockwise:
      return "fp8_blockwise";
  }
  return "?";
}

std::optional<Precision> PrecisionFromName(std::string_view name) {
  for (const Precision precision : kAll) {
    if (name == PrecisionName(precision)) return precision;
  }
  return std::nullopt;
}

std::vector<std::string> PrecisionNames() {
  std::vector<std::string> names;
  for (const Precision precision : kAll) names.push_back(PrecisionName(precision));
  return names;
}

bool IsFp8(Precision precision) {
  return precision != Precision::kFp32 && precision != Precision::kBf16;
}

std::optional<Fp8Recipe> RecipeOf(Precision precision) {
  return ParseFp8Recipe(PrecisionName(precision));
}

DType ComputeType(Precision precision) {
  return precision == Precision::kFp32 ? DType::kF32 : DType::kBF16;
}

}  // namespace cria::model
