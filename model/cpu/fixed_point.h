// fp32 to 64-bit fixed point and back, a row at a time. For .cc files of cria_isa_library only.
//
// Every step is exact but one rounding, to nearest and ties to even, so the vectors and the rest of
// a row agree with each other and on all instruction sets.

#ifndef CRIA_MODEL_CPU_FIXED_POINT_H_
#define CRIA_MODEL_CPU_FIXED_POINT_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "model/cpu/vec.h"

namespace cria::model::cpu::CRIA_ISA {

inline constexpr int kDoubles = kLanes / 2;

typedef double VecD __attribute__((vector_size(kDoubles * 8)));
typedef int64_t VecL __attribute__((vector_size(kDoubles * 8)));
typedef uint64_t VecLU __attribute__((vector_size(kDoubles * 8)));
typedef float VecHalf __attribute__((vector_size(kDoubles * 4)));

// 2^power, -1022 <= power <= 1023.
inline double PowerOfTwo(int power) {
  const uint64_t bits = static_cast<uint64_t>(1023 + power) << 52;
  double x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// The nearest integers to |x| < 2^62. Adding 1.5 * 2^52 rounds what is below 2^51 to an integer,
// which the sum's lowest bits then hold; so in two parts of 32 bits.
inline VecL RoundToInteger(VecD x) {
  const VecD kMagic = VecD{} + 0x1.8p52;
  const VecD high_sum = x * 0x1p-32 + kMagic;
  const VecD low = x - (high_sum - kMagic) * 0x1p32;
  const VecL high = (VecL)high_sum - (VecL)kMagic;
  return (high << 32) + ((VecL)(low + kMagic) - (VecL)kMagic);
}

// to += round(from * scale); false where a number was left out: not finite, or 2^62 and more.
inline bool AddFixedRow(const float* from, int64_t* to, int64_t n, double scale) {
  const VecD kLimit = VecD{} + 0x1p62;
  VecL fits = ~VecL{};
  int64_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles) {
    VecHalf x;
    std::memcpy(&x, from + i, sizeof(x));
    const VecD scaled = __builtin_convertvector(x, VecD) * scale;
    const VecL fit = (scaled < kLimit) & (scaled > -kLimit);
    fits &= fit;
    VecL sum;
    std::memcpy(&sum, to + i, sizeof(sum));
    sum += RoundToInteger((VecD)((VecL)scaled & fit));
    std::memcpy(to + i, &sum, sizeof(sum));
  }
  bool all_fit = true;
  for (; i < n; ++i) {
    const double scaled = static_cast<double>(from[i]) * scale;
    if (scaled < 0x1p62 && scaled > -0x1p62) {
      to[i] += std::llrint(scaled);
    } else {
      all_fit = false;
    }
  }
  for (int j = 0; j < kDoubles; ++j) all_fit = all_fit && fits[j] != 0;
  return all_fit;
}

// Integers as doubles. Those of more than 53 bits lose their lowest 11, and the lowest bit left is
// set where one of them was ("round to odd"): a later rounding to fewer bits comes out as if it
// were the only one.
inline VecD ToDoubleOdd(VecL x) {
  constexpr int64_t kLost = (1 << 11) - 1, kExact = int64_t{1} << 53;
  const VecL is_short = (x < kExact) & (x > -kExact);
  const VecL odd = (x & ~kLost) | (((x & kLost) != 0) & (kLost + 1));
  const VecL exact = (x & is_short) | (odd & ~is_short);
  // The halves as the lowest bits of 2^84 + 2^63 (which makes the upper one positive) and of 2^52.
  const VecL upper = (VecL)((VecLU)exact >> 32) ^ 0x4530000080000000;
  const VecL lower = (exact & 0xffffffff) | 0x4330000000000000;
  return ((VecD)upper - (0x1p84 + 0x1p63 + 0x1p52)) + (VecD)lower;
}

// from * scale as fp32 numbers, rounded once; to odd where `odd`.
inline VecHalf ToFloats(VecL from, double scale, bool odd) {
  constexpr int64_t kLost = (1 << 29) - 1;
  const VecD x = ToDoubleOdd(from) * scale;
  const VecL bits = (VecL)x;
  const VecL odd_bits = (bits & ~kLost) | (((bits & kLost) != 0) & (kLost + 1));
  return __builtin_convertvector(odd ? (VecD)odd_bits : x, VecHalf);
}

// to = from * scale, rounded once.
template <typename T>
inline void FixedToFloatRow(const int64_t* from, T* to, int64_t n, double scale) {
  const auto convert = [&](const int64_t* integers) {
    VecL parts[2];
    std::memcpy(parts, integers, sizeof(parts));
    // bf16 is rounded from fp32.
    const bool odd = sizeof(T) == 2;
    const VecHalf halves[2] = {ToFloats(parts[0], scale, odd), ToFloats(parts[1], scale, odd)};
    Vec floats;
    std::memcpy(&floats, halves, sizeof(floats));
    return floats;
  };
  ForVectors(
      n, [&](int64_t i) { Store(to + i, convert(from + i)); },
      [&](int64_t i, int64_t rest) {
        int64_t padded[kLanes] = {};
        for (int64_t j = 0; j < rest; ++j) padded[j] = from[i + j];
        StorePartial(to + i, convert(padded), rest);
      });
}

}  // namespace cria::model::cpu::CRIA_ISA

#endif  // CRIA_MODEL_CPU_FIXED_POINT_H_
