// From the largest magnitude of a group of numbers (amax) to the factor that they are multiplied
// with before they are rounded to 8 bits. Plain constexpr C++: both backends call these.
//
//   const float scale = CurrentScale(Fp8Format::kE4M3, amax);   // 448 / amax
//   code = EncodeE4M3(x * scale, Saturate::kFinite);            // x ~ DecodeE4M3(code) / scale
//
// No rule ever returns zero, an infinity or NaN. Divisions round to nearest. Thread-safe.
// Source: TransformerEngine, recipe_common.cuh and delayed_scaling.cu; where we differ is said.

#ifndef CRIA_MODEL_FP8_SCALE_H_
#define CRIA_MODEL_FP8_SCALE_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "model/fp8/formats.h"

namespace cria::model {

inline constexpr float kMaxFloat = 0x1.fffffep127f;

// Neither zero, nor infinite, nor NaN: an amax that a scale can be computed from.
constexpr bool IsUsableAmax(float amax) { return amax > 0 && amax <= kMaxFloat; }

// Tensorwise, from this step's amax: max / amax. 1 without a usable amax; the largest float where
// the quotient overflows.
constexpr float CurrentScale(Fp8Format format, float amax) {
  if (!IsUsableAmax(amax)) return 1;
  return std::min(Fp8Max(format) / amax, kMaxFloat);
}

// Delayed, from the history's amax: max / amax / 2^margin. `previous` without a usable amax. Kept
// where its reciprocal is a number too.
constexpr float DelayedScale(Fp8Format format, float amax, int margin, float previous) {
  if (!IsUsableAmax(amax)) return previous;
  const float factor = std::bit_cast<float>(static_cast<uint32_t>(127 - margin) << 23);
  return std::clamp(Fp8Max(format) * factor / amax, 0x1p-126f, kMaxFloat);
}

// Rows, columns and blocks: the largest power of two not above max / amax, so that undoing it is
// exact. 1 without a usable amax. It is kept between the two powers of two outside of which a
// value divided by it again would no longer be a bf16 number: 2^-119 to 2^124 for E4M3, 2^-112 to
// 2^117 for E5M2 (amax above 2^127 or below 2^-116; TransformerEngine limits only the upper end).
constexpr float PowerOfTwoScale(Fp8Format format, float amax) {
  if (!IsUsableAmax(amax)) return 1;
  const bool is_e4m3 = format == Fp8Format::kE4M3;
  const float lowest = is_e4m3 ? 0x1p-119f : 0x1p-112f;  // max / lowest = 1.75 * 2^127
  const float highest = is_e4m3 ? 0x1p124f : 0x1p117f;   // min subnormal / highest = 2^-133
  const float quotient = std::clamp(Fp8Max(format) / amax, lowest, highest);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(quotient) & 0x7F800000u);
}

// 1 / scale of a scale from PowerOfTwoScale, without a division.
constexpr float InversePowerOfTwo(float scale) {
  return std::bit_cast<float>((254u << 23) - std::bit_cast<uint32_t>(scale));
}

}  // namespace cria::model

#endif  // CRIA_MODEL_FP8_SCALE_H_
