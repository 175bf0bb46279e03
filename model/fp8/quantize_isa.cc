// The loops behind quantize.h, written so that g++ -O3 vectorises them; compiled once per
// instruction set with CRIA_ISA its name. Built with -ffp-contract=off: a multiplication fused with
// the additions of the rounding would round differently from one instruction set to the next.

#include <bit>
#include <cstdint>
#include <type_traits>

#include "model/fp8/quantize_kernels.h"

namespace cria::model::fp8_internal::CRIA_ISA {
namespace {

constexpr uint32_t kSignBit = 0x80000000u;
constexpr uint32_t kInfinityBits = 0x7F800000u;

inline float ToFloat(float x) { return x; }
inline float ToFloat(uint16_t bf16) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16);
}

void AmaxF32(const void* in, int64_t n, uint32_t* amax_bits) {
  const float* x = static_cast<const float*>(in);
  int32_t amax = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = static_cast<int32_t>(std::bit_cast<uint32_t>(x[i]) & ~kSignBit);
    amax = magnitude > amax ? magnitude : amax;
  }
  if (static_cast<uint32_t>(amax) > *amax_bits) *amax_bits = static_cast<uint32_t>(amax);
}

void AmaxBF16(const void* in, int64_t n, uint32_t* amax_bits) {
  const uint16_t* bits = static_cast<const uint16_t*>(in);
  int16_t amax = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int16_t magnitude = static_cast<int16_t>(bits[i] & 0x7FFFu);
    amax = magnitude > amax ? magnitude : amax;
  }
  const uint32_t widened = static_cast<uint32_t>(amax) << 16;
  if (widened > *amax_bits) *amax_bits = widened;
}

template <typename In>
void ColumnAmax(const void* in, int64_t n, uint32_t* amax_bits) {
  const In* x = static_cast<const In*>(in);
  int32_t* amax = reinterpret_cast<int32_t*>(amax_bits);  // no sign bit is ever set
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude =
        static_cast<int32_t>(std::bit_cast<uint32_t>(ToFloat(x[i])) & ~kSignBit);
    amax[i] = magnitude > amax[i] ? magnitude : amax[i];
  }
}

// |x| >= 0 rounded to the grid. With p the power of two at or below |x| (not below the smallest
// normal), the grid's step there is p / 2^m; adding p * 2^(23-m) brings a float's last bit to that
// step, so that the addition itself rounds, to nearest and ties to even. Values beyond the largest
// are cut off first. NaN passes: it compares false, and NaN + anything is NaN.
inline float RoundMagnitude(float magnitude, const Grid& grid) {
  const float cut = grid.max < magnitude ? grid.max : magnitude;
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(cut) & kInfinityBits);
  const float lift = (power > grid.min_normal ? power : grid.min_normal) * grid.step_up;
  return (cut + lift) - lift;
}

template <typename Out>
inline Out Store(float rounded, uint32_t sign, float fold, const Grid& grid) {
  const uint32_t bits = std::bit_cast<uint32_t>(rounded);
  if constexpr (std::is_same_v<Out, uint8_t>) {
    const int32_t shift = 23 - grid.mantissa_bits;
    const int32_t normal =
        static_cast<int32_t>(bits >> shift) - ((127 - grid.bias) << grid.mantissa_bits);
    const float in_steps = rounded * grid.per_min_subnormal;
    const int32_t subnormal = static_cast<int32_t>(in_steps < 8.0f ? in_steps : 0.0f);
    const int32_t magnitude = rounded < grid.min_normal ? subnormal : normal;
    const int32_t code = magnitude | static_cast<int32_t>(sign >> 24);
    return static_cast<uint8_t>(bits > kInfinityBits ? kFp8NaN : code);
  } else {
    const uint32_t folded = std::bit_cast<uint32_t>(rounded * fold) | sign;
    if constexpr (std::is_same_v<Out, float>) {
      return std::bit_cast<float>(folded);
    } else {
      return static_cast<uint16_t>(folded >> 16);
    }
  }
}

template <typename In, typename Out, bool kPerElement>
void Round(const void* in_data, int64_t n, const float* scales, const float* folds,
           const Grid& grid_in_memory, void* out_data) {
  const In* in = static_cast<const In*>(in_data);
  Out* out = static_cast<Out*>(out_data);
  const Grid grid = grid_in_memory;
  const float scale = scales[0];
  const float fold = folds[0];
  // Input and output are the same element or apart: no iteration depends on another.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float scaled = ToFloat(in[i]) * (kPerElement ? scales[i] : scale);
    const uint32_t bits = std::bit_cast<uint32_t>(scaled);
    const float rounded = RoundMagnitude(std::bit_cast<float>(bits & ~kSignBit), grid);
    out[i] = Store<Out>(rounded, bits & kSignBit, kPerElement ? folds[i] : fold, grid);
  }
}

}  // namespace

const Kernels kKernels = {
    .amax = {AmaxF32, AmaxBF16},
    .column_amax = {ColumnAmax<float>, ColumnAmax<uint16_t>},
    .round = {{Round<float, float, false>, Round<float, uint16_t, false>,
               Round<float, uint8_t, false>},
              {Round<uint16_t, float, false>, Round<uint16_t, uint16_t, false>,
               Round<uint16_t, uint8_t, false>}},
    .round_columns = {{Round<float, float, true>, Round<float, uint16_t, true>,
                       Round<float, uint8_t, true>},
                      {Round<uint16_t, float, true>, Round<uint16_t, uint16_t, true>,
                       Round<uint16_t, uint8_t, true>}},
};

}  // namespace cria::model::fp8_internal::CRIA_ISA
