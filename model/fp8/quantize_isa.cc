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

// The bits without the sign, in the widest integer that the type needs: bf16 halves the vectors.
inline int32_t MagnitudeBits(float x) {
  return static_cast<int32_t>(std::bit_cast<uint32_t>(x) & ~kSignBit);
}
inline int16_t MagnitudeBits(uint16_t bf16) { return static_cast<int16_t>(bf16 & 0x7FFFu); }

inline uint32_t AsFloatBits(int32_t bits) { return static_cast<uint32_t>(bits); }
inline uint32_t AsFloatBits(int16_t bits) { return static_cast<uint32_t>(bits) << 16; }

template <typename T>
inline T Larger(T a, T b) {
  return a > b ? a : b;
}

template <typename In>
void Amax(const Source& in, uint32_t* amax_bits) {
  using Bits = decltype(MagnitudeBits(In{}));
  Bits amax = 0;
  for (int64_t r = 0; r < in.rows; ++r) {
    const In* x = static_cast<const In*>(in.data) + r * in.stride;
    for (int64_t c = 0; c < in.cols; ++c) amax = Larger(amax, MagnitudeBits(x[c]));
  }
  *amax_bits = Larger(*amax_bits, AsFloatBits(amax));
}

template <typename In>
void ColumnAmax(const Source& in, uint32_t* amax_bits) {
  // Four rows a pass: fewer round trips through amax_bits.
  for (int64_t r = 0; r < in.rows; r += 4) {
    const In* x0 = static_cast<const In*>(in.data) + r * in.stride;
    const In* x1 = r + 1 < in.rows ? x0 + in.stride : x0;
    const In* x2 = r + 2 < in.rows ? x1 + in.stride : x0;
    const In* x3 = r + 3 < in.rows ? x2 + in.stride : x0;
#pragma GCC ivdep
    for (int64_t c = 0; c < in.cols; ++c) {
      const auto largest = Larger(Larger(MagnitudeBits(x0[c]), MagnitudeBits(x1[c])),
                                  Larger(MagnitudeBits(x2[c]), MagnitudeBits(x3[c])));
      // No sign bit is ever set, and signed maxima exist in every instruction set.
      const int32_t before = static_cast<int32_t>(amax_bits[c]);
      amax_bits[c] =
          static_cast<uint32_t>(Larger(before, static_cast<int32_t>(AsFloatBits(largest))));
    }
  }
}

// |x| >= 0 rounded to the grid. With p the power of two at or below |x| (not below the smallest
// normal), the grid's step there is p / 2^m; adding p * 2^(23-m) brings a float's last bit to that
// step, so that the addition itself rounds, to nearest and ties to even. Values beyond the largest
// are cut off first. NaN passes: it compares false, and NaN + anything is NaN.
inline float RoundMagnitude(float magnitude, const Grid& grid) {
  const float cut = grid.max < magnitude ? grid.max : magnitude;
  // From `magnitude` and not `cut`: g++ then finds that each line is one minimum or maximum.
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) & kInfinityBits);
  const float not_below = power > grid.min_normal ? power : grid.min_normal;
  const float within = not_below < grid.max_power ? not_below : grid.max_power;
  const float lift = within * grid.step_up;
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

// One element: scaled, rounded, stored as Out.
template <typename Out>
inline Out RoundOne(float x, float scale, float fold, const Grid& grid) {
  const uint32_t bits = std::bit_cast<uint32_t>(x * scale);
  const float rounded = RoundMagnitude(std::bit_cast<float>(bits & ~kSignBit), grid);
  return Store<Out>(rounded, bits & kSignBit, fold, grid);
}

template <typename In, typename Out, bool kPerColumn>
inline void RoundRow(const In* x, int64_t n, const float* scales, const float* folds,
                     const Grid& grid, Out* out) {
  const float scale = scales[0];
  const float fold = folds[0];
  // Input and output are the same element or apart: no iteration depends on another.
#pragma GCC ivdep
  for (int64_t c = 0; c < n; ++c) {
    out[c] = RoundOne<Out>(ToFloat(x[c]), kPerColumn ? scales[c] : scale,
                           kPerColumn ? folds[c] : fold, grid);
  }
}

// bf16 to bf16 by one scale, two elements in each 32-bit lane: the upper one is a float once the
// lower is masked, the lower one once it is shifted up. Nothing needs to be unpacked or packed.
inline void RoundRowInPairs(const uint16_t* x, int64_t n, float scale, float fold, const Grid& grid,
                            uint16_t* out) {
  const int64_t num_pairs = n / 2;
#pragma GCC ivdep
  for (int64_t p = 0; p < num_pairs; ++p) {
    uint32_t pair;
    __builtin_memcpy(&pair, x + 2 * p, sizeof(pair));
    const float upper = std::bit_cast<float>(pair & 0xFFFF0000u);
    const float lower = std::bit_cast<float>(pair << 16);
    const uint32_t upper_bits =
        std::bit_cast<uint32_t>(RoundOne<float>(upper, scale, fold, grid)) & 0xFFFF0000u;
    const uint32_t lower_bits =
        std::bit_cast<uint32_t>(RoundOne<float>(lower, scale, fold, grid)) >> 16;
    const uint32_t rounded = upper_bits | lower_bits;
    __builtin_memcpy(out + 2 * p, &rounded, sizeof(rounded));
  }
  if (n % 2 != 0) out[n - 1] = RoundOne<uint16_t>(ToFloat(x[n - 1]), scale, fold, grid);
}

template <typename In, typename Out, bool kPerColumn>
void Round(const Source& in, const float* scales, const float* folds, const Grid& grid_in_memory,
           void* out_data, int64_t out_stride) {
  const Grid grid = grid_in_memory;
  for (int64_t r = 0; r < in.rows; ++r) {
    const In* x = static_cast<const In*>(in.data) + r * in.stride;
    Out* out = static_cast<Out*>(out_data) + r * out_stride;
    if constexpr (std::is_same_v<In, uint16_t> && std::is_same_v<Out, uint16_t> && !kPerColumn) {
      RoundRowInPairs(x, in.cols, scales[0], folds[0], grid, out);
    } else {
      RoundRow<In, Out, kPerColumn>(x, in.cols, scales, folds, grid, out);
    }
  }
}

}  // namespace

const Kernels kKernels = {
    .amax = {Amax<float>, Amax<uint16_t>},
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
