// The 8-bit formats, code by code and tie by tie, and against CUDA's own header where it is
// installed (it is plain C++; no GPU is needed).

#include "model/fp8/formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#if __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#define CRIA_HAS_CUDA_FP8 1
#endif

namespace cria::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The value of a code by the specification's formula, in double.
double ValueByFormula(int code, int exponent_bits, int mantissa_bits, int bias) {
  const int sign = code >> 7;
  const int exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const double fraction = mantissa / std::pow(2.0, mantissa_bits);
  const double magnitude = exponent == 0 ? std::pow(2.0, 1 - bias) * fraction
                                         : std::pow(2.0, exponent - bias) * (1 + fraction);
  return sign != 0 ? -magnitude : magnitude;
}

TEST(FormatsTest, DecodesAll256CodesOfE4M3) {
  for (int code = 0; code < 256; ++code) {
    const float value = DecodeE4M3(static_cast<uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    EXPECT_EQ(value, ValueByFormula(code, 4, 3, 7)) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
  }
  EXPECT_EQ(DecodeE4M3(0x7E), E4M3::kMax);
  EXPECT_EQ(DecodeE4M3(0x08), E4M3::kMinNormal);
  EXPECT_EQ(DecodeE4M3(0x01), E4M3::kMinSubnormal);
}

TEST(FormatsTest, DecodesAll256CodesOfE5M2) {
  for (int code = 0; code < 256; ++code) {
    const float value = DecodeE5M2(static_cast<uint8_t>(code));
    if ((code & 0x7F) > 0x7C) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
    if ((code & 0x7F) == 0x7C) {
      EXPECT_TRUE(std::isinf(value)) << code;
      continue;
    }
    EXPECT_EQ(value, ValueByFormula(code, 5, 2, 15)) << code;
  }
  EXPECT_EQ(DecodeE5M2(0x7B), E5M2::kMax);
  EXPECT_EQ(DecodeE5M2(0x04), E5M2::kMinNormal);
  EXPECT_EQ(DecodeE5M2(0x01), E5M2::kMinSubnormal);
}

// Decoding then encoding gives the code back; every value survives bf16.
TEST(FormatsTest, EncodesEveryValueAsItsOwnCodeAndBf16HoldsIt) {
  for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
    for (int code = 0; code < 256; ++code) {
      const float value = DecodeFp8(format, static_cast<uint8_t>(code));
      const uint8_t again = EncodeFp8(format, value, Saturate::kNone);
      EXPECT_EQ(again, std::isnan(value) ? kFp8NaN : code);
      EXPECT_EQ(std::bit_cast<uint32_t>(value) & 0xFFFFu, 0u) << code;
    }
  }
}

// Between each two neighbours: the middle goes to the even code, everything else to the nearer.
TEST(FormatsTest, RoundsToNearestAndTiesToEvenBetweenAllNeighbours) {
  for (const Fp8Format format : {Fp8Format::kE4M3, Fp8Format::kE5M2}) {
    const int max_code = format == Fp8Format::kE4M3 ? E4M3::kMaxCode : E5M2::kMaxCode;
    for (int code = 0; code < max_code; ++code) {
      const float low = DecodeFp8(format, static_cast<uint8_t>(code));
      const float high = DecodeFp8(format, static_cast<uint8_t>(code + 1));
      const float middle = (low + high) / 2;  // exact: one more bit
      const int even = code % 2 == 0 ? code : code + 1;
      for (const Saturate saturate : {Saturate::kNone, Saturate::kFinite}) {
        EXPECT_EQ(EncodeFp8(format, middle, saturate), even);
        EXPECT_EQ(EncodeFp8(format, std::nextafter(middle, 0.0f), saturate), code);
        EXPECT_EQ(EncodeFp8(format, std::nextafter(middle, kInfinity), saturate), code + 1);
        EXPECT_EQ(EncodeFp8(format, -middle, saturate), even | 0x80);
      }
    }
  }
}

struct EncodeCase {
  float value;
  uint8_t e4m3_none, e4m3_finite, e5m2_none, e5m2_finite;
};

TEST(FormatsTest, EncodesTheEdgesAsTheTableSays) {
  const EncodeCase cases[] = {
      {0.0f, 0x00, 0x00, 0x00, 0x00},
      {-0.0f, 0x80, 0x80, 0x80, 0x80},
      {kNaN, 0x7F, 0x7F, 0x7F, 0x7F},
      {-kNaN, 0x7F, 0x7F, 0x7F, 0x7F},
      {kInfinity, 0x7F, 0x7E, 0x7C, 0x7B},
      {-kInfinity, 0xFF, 0xFE, 0xFC, 0xFB},
      {448, 0x7E, 0x7E, 0x5F, 0x5F},
      {464, 0x7E, 0x7E, 0x5F, 0x5F},  // E4M3's tie rounds to the maximum
      {std::nextafter(464.0f, kInfinity), 0x7F, 0x7E, 0x5F, 0x5F},
      {-480, 0xFF, 0xFE, 0xE0, 0xE0},
      {57344, 0x7F, 0x7E, 0x7B, 0x7B},
      {std::nextafter(61440.0f, 0.0f), 0x7F, 0x7E, 0x7B, 0x7B},
      {61440, 0x7F, 0x7E, 0x7C, 0x7B},  // E5M2's tie would round to the infinity
      {0x1p-10f, 0x00, 0x00, 0x14, 0x14},
      {0x1.8p-10f, 0x01, 0x01, 0x16, 0x16},
      {-0x1p-10f, 0x80, 0x80, 0x94, 0x94},
      {0x1p-17f, 0x00, 0x00, 0x00, 0x00},
      {std::nextafter(0x1p-17f, 1.0f), 0x00, 0x00, 0x01, 0x01},
      {std::numeric_limits<float>::denorm_min(), 0x00, 0x00, 0x00, 0x00},
      {-std::numeric_limits<float>::denorm_min(), 0x80, 0x80, 0x80, 0x80},
      {0x1.fffffep-127f, 0x00, 0x00, 0x00, 0x00},
  };
  for (const EncodeCase& c : cases) {
    EXPECT_EQ(EncodeE4M3(c.value, Saturate::kNone), c.e4m3_none) << c.value;
    EXPECT_EQ(EncodeE4M3(c.value, Saturate::kFinite), c.e4m3_finite) << c.value;
    EXPECT_EQ(EncodeE5M2(c.value, Saturate::kNone), c.e5m2_none) << c.value;
    EXPECT_EQ(EncodeE5M2(c.value, Saturate::kFinite), c.e5m2_finite) << c.value;
  }
}

TEST(FormatsTest, DecodesAll256CodesOfE8M0) {
  for (int code = 0; code < 255; ++code) {
    const float value = DecodeE8M0(static_cast<uint8_t>(code));
    EXPECT_EQ(value, std::ldexp(1.0, code - 127)) << code;
    EXPECT_EQ(EncodeE8M0RoundUp(value, Saturate::kNone), code);
    if (code < 254) {
      EXPECT_EQ(EncodeE8M0RoundUp(std::nextafter(value, kInfinity), Saturate::kNone), code + 1);
    }
  }
  EXPECT_TRUE(std::isnan(DecodeE8M0(0xFF)));
  EXPECT_EQ(EncodeE8M0RoundUp(kNaN, Saturate::kFinite), 0xFF);
  EXPECT_EQ(EncodeE8M0RoundUp(kInfinity, Saturate::kNone), 0xFF);
  EXPECT_EQ(EncodeE8M0RoundUp(kInfinity, Saturate::kFinite), 0xFE);
  EXPECT_EQ(EncodeE8M0RoundUp(0, Saturate::kFinite), 0x00);
}

#ifdef CRIA_HAS_CUDA_FP8
void ExpectSameAsCuda(float value) {
  for (const Saturate saturate : {Saturate::kNone, Saturate::kFinite}) {
    const __nv_saturation_t mode = saturate == Saturate::kNone ? __NV_NOSAT : __NV_SATFINITE;
    ASSERT_EQ(EncodeE4M3(value, saturate), __nv_cvt_float_to_fp8(value, mode, __NV_E4M3))
        << std::hexfloat << value;
    ASSERT_EQ(EncodeE5M2(value, saturate), __nv_cvt_float_to_fp8(value, mode, __NV_E5M2))
        << std::hexfloat << value;
    ASSERT_EQ(EncodeE8M0RoundUp(value, saturate),
              __nv_cvt_float_to_e8m0(value, mode, cudaRoundPosInf))
        << std::hexfloat << value;
  }
}
#endif

TEST(FormatsTest, EncodesAsCudaDoes) {
#ifdef CRIA_HAS_CUDA_FP8
  // All bf16 numbers, the floats next to each, and a walk over all floats by a prime stride.
  for (uint32_t bf16 = 0; bf16 < 65536; ++bf16) {
    for (const uint32_t below : {0u, 1u, 0x7FFFu, 0x8000u, 0xFFFFu}) {
      ExpectSameAsCuda(std::bit_cast<float>(bf16 << 16 | below));
    }
  }
  for (uint64_t bits = 0; bits < 1ull << 32; bits += 1009) {
    ExpectSameAsCuda(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
#else
  GTEST_SKIP() << "cuda_fp8.h is not on the include path; install the CUDA toolkit's headers";
#endif
}

TEST(FormatsTest, IsUsableAtCompileTime) {
  static_assert(EncodeE4M3(0.3f, Saturate::kFinite) == 0x2A);
  static_assert(DecodeE4M3(0x2A) == 0.3125f);
  static_assert(DecodeE8M0(0) == 0x1p-127f);
}

}  // namespace
}  // namespace cria::model
