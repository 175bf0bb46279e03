// The 8-bit floating-point formats, as scalar reference code: what one code means and which code a
// float becomes. Plain constexpr C++, usable from CUDA with --expt-relaxed-constexpr.
//
//   const uint8_t code = EncodeE4M3(0.3f, Saturate::kFinite);   // 0x2A
//   const float value = DecodeE4M3(code);                       // 0.3125
//
//                       E4M3 (fn)            E5M2                 E8M0 (scales)
//   bias                7                    15                   127
//   max finite          448 = 0x7E           57344 = 0x7B         2^127 = 0xFE
//   infinities          none                 0x7C, 0xFC           none
//   NaN                 0x7F, 0xFF           0x7D-7F, 0xFD-FF     0xFF
//   min normal          2^-6  = 0x08         2^-14 = 0x04         2^-127 = 0x00, no zero
//   min subnormal       2^-9  = 0x01         2^-16 = 0x01         -
//
// Rounding is to nearest, ties to the even code, once and from fp32. The limit of overflow is half
// a step above the maximum: E4M3 rounds up to and including 464 down to 448 (a tie, 0x7E is even);
// E5M2 rounds everything below 61440 down to 57344, and 61440 itself overflows (0x7B is odd).
// Every E4M3 and E5M2 value is exact in bf16 and in fp32. The vectorised form is
// model/fp8/quantize.h. Thread-safe.
// Source: OCP 8-bit Floating Point Specification 1.0; equal to CUDA's cuda_fp8.h on all inputs
// (tests/unit/model/fp8/formats_test.cc).

#ifndef CRIA_MODEL_FP8_FORMATS_H_
#define CRIA_MODEL_FP8_FORMATS_H_

#include <bit>
#include <cstdint>

namespace cria::model {

enum class Fp8Format : uint8_t { kE4M3, kE5M2 };

// What becomes of a value beyond the largest finite one, infinities included. NaN stays NaN.
enum class Saturate : uint8_t {
  kNone,    // E4M3: NaN (it has no infinity); E5M2: infinity
  kFinite,  // the largest finite value of the same sign: an infinity goes unnoticed
};

struct E4M3 {
  static constexpr int kMantissaBits = 3;
  static constexpr int kBias = 7;
  static constexpr float kMax = 448;
  static constexpr float kMinNormal = 0x1p-6f;
  static constexpr float kMinSubnormal = 0x1p-9f;
  static constexpr uint8_t kMaxCode = 0x7E;
  static constexpr uint8_t kOverflowCode = 0x7F;
  // Magnitudes from this one on overflow: the first float above the tie at 464.
  static constexpr float kOverflow = 464 + 0x1p-15f;
};

struct E5M2 {
  static constexpr int kMantissaBits = 2;
  static constexpr int kBias = 15;
  static constexpr float kMax = 57344;
  static constexpr float kMinNormal = 0x1p-14f;
  static constexpr float kMinSubnormal = 0x1p-16f;
  static constexpr uint8_t kMaxCode = 0x7B;
  static constexpr uint8_t kOverflowCode = 0x7C;
  static constexpr float kOverflow = 61440;
};

inline constexpr uint8_t kFp8NaN = 0x7F;   // what encoding writes; its sign is dropped
inline constexpr uint8_t kE8M0NaN = 0xFF;  // the only one

// The code nearest to `value`.
template <typename Format>
constexpr uint8_t EncodeFp8(float value, Saturate saturate) {
  constexpr int kDroppedBits = 23 - Format::kMantissaBits;
  constexpr uint32_t kMinNormalBits = std::bit_cast<uint32_t>(Format::kMinNormal);
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint8_t sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  if (magnitude > 0x7F800000u) return kFp8NaN;
  if (magnitude >= std::bit_cast<uint32_t>(Format::kOverflow)) {
    return sign | (saturate == Saturate::kFinite ? Format::kMaxCode : Format::kOverflowCode);
  }
  // The significand as an integer, and how many of its low bits the code has no room for: below
  // the smallest normal the step stays fixed, so that each halving drops one bit more.
  uint32_t significand = magnitude;
  int dropped = kDroppedBits;
  if (magnitude < kMinNormalBits) {
    const int halvings = static_cast<int>(kMinNormalBits >> 23) - static_cast<int>(magnitude >> 23);
    if (halvings > Format::kMantissaBits + 1) return sign;  // below half of the smallest
    significand = (magnitude & 0x7FFFFFu) | 0x800000u;
    dropped += halvings;
  } else {
    significand -= kMinNormalBits - 0x800000u;  // the exponent re-biased: min normal is code 1 << m
  }
  const uint32_t half_minus_one = (1u << (dropped - 1)) - 1;
  const uint32_t is_odd = significand >> dropped & 1u;
  return sign | static_cast<uint8_t>((significand + half_minus_one + is_odd) >> dropped);
}

// The value of `code`: exact. All NaN codes give the same quiet NaN.
template <typename Format>
constexpr float DecodeFp8(uint8_t code) {
  const uint32_t magnitude = code & 0x7Fu;
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  if (magnitude > Format::kMaxCode) {
    const bool is_infinity = Format::kOverflowCode != kFp8NaN && magnitude == Format::kOverflowCode;
    return std::bit_cast<float>(is_infinity ? sign | 0x7F800000u : 0x7FC00000u);
  }
  if (magnitude < 1u << Format::kMantissaBits) {  // zero and subnormals
    const float value = static_cast<float>(magnitude) * Format::kMinSubnormal;
    return sign != 0 ? -value : value;
  }
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Format::kBias) << 23;
  return std::bit_cast<float>(sign | ((magnitude << (23 - Format::kMantissaBits)) + kRebias));
}

constexpr uint8_t EncodeE4M3(float value, Saturate saturate) {
  return EncodeFp8<E4M3>(value, saturate);
}
constexpr uint8_t EncodeE5M2(float value, Saturate saturate) {
  return EncodeFp8<E5M2>(value, saturate);
}
constexpr float DecodeE4M3(uint8_t code) { return DecodeFp8<E4M3>(code); }
constexpr float DecodeE5M2(uint8_t code) { return DecodeFp8<E5M2>(code); }

constexpr uint8_t EncodeFp8(Fp8Format format, float value, Saturate saturate) {
  return format == Fp8Format::kE4M3 ? EncodeE4M3(value, saturate) : EncodeE5M2(value, saturate);
}
constexpr float DecodeFp8(Fp8Format format, uint8_t code) {
  return format == Fp8Format::kE4M3 ? DecodeE4M3(code) : DecodeE5M2(code);
}
constexpr float Fp8Max(Fp8Format format) {
  return format == Fp8Format::kE4M3 ? E4M3::kMax : E5M2::kMax;
}

// 2^(code - 127); 0xFF is NaN.
constexpr float DecodeE8M0(uint8_t code) {
  if (code == kE8M0NaN) return std::bit_cast<float>(0x7FC00000u);
  if (code == 0) return 0x1p-127f;  // a subnormal float
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

// The code of the smallest power of two not below |value| (the direction that keeps a scaled block
// from overflowing); 0x00 for anything below 2^-127.
constexpr uint8_t EncodeE8M0RoundUp(float value, Saturate saturate) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return kE8M0NaN;
  if (magnitude <= 0x00400000u) return 0;  // at most 2^-127
  const uint32_t code = (magnitude >> 23) + ((magnitude & 0x7FFFFFu) != 0 ? 1 : 0);
  if (code < kE8M0NaN) return static_cast<uint8_t>(code);
  return saturate == Saturate::kFinite ? 0xFE : kE8M0NaN;
}

}  // namespace cria::model

#endif  // CRIA_MODEL_FP8_FORMATS_H_
