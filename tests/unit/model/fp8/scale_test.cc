// From amax to scale: ordinary values in closed form, and every amax that is no ordinary one.

#include "model/fp8/scale.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace cria::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormMin = std::numeric_limits<float>::denorm_min();
constexpr Fp8Format kFormats[] = {Fp8Format::kE4M3, Fp8Format::kE5M2};

TEST(ScaleTest, IsMaxByAmaxRoundedToNearest) {
  EXPECT_EQ(CurrentScale(Fp8Format::kE4M3, 3.0f), static_cast<float>(448.0 / 3.0));
  EXPECT_EQ(CurrentScale(Fp8Format::kE5M2, 0.7f),
            static_cast<float>(57344.0 / static_cast<double>(0.7f)));
  EXPECT_EQ(DelayedScale(Fp8Format::kE4M3, 3.0f, 0, 9.0f), CurrentScale(Fp8Format::kE4M3, 3.0f));
  EXPECT_EQ(DelayedScale(Fp8Format::kE4M3, 3.0f, 2, 9.0f),
            CurrentScale(Fp8Format::kE4M3, 3.0f) / 4);
}

TEST(ScaleTest, IsOneOrThePreviousWhenAmaxIsZeroOrNotFinite) {
  for (const Fp8Format format : kFormats) {
    for (const float amax : {0.0f, kInfinity, kNaN}) {
      EXPECT_EQ(CurrentScale(format, amax), 1);
      EXPECT_EQ(PowerOfTwoScale(format, amax), 1);
      EXPECT_EQ(DelayedScale(format, amax, 0, 12.5f), 12.5f);
    }
  }
}

TEST(ScaleTest, IsTheLargestFloatWhenTheQuotientOverflows) {
  for (const Fp8Format format : kFormats) {
    EXPECT_EQ(CurrentScale(format, kDenormMin), kMaxFloat);
    EXPECT_EQ(DelayedScale(format, kDenormMin, 0, 1.0f), kMaxFloat);
  }
}

TEST(ScaleTest, RoundsPowersOfTwoDown) {
  EXPECT_EQ(PowerOfTwoScale(Fp8Format::kE4M3, 448), 1);
  EXPECT_EQ(PowerOfTwoScale(Fp8Format::kE4M3, 449), 0.5f);
  EXPECT_EQ(PowerOfTwoScale(Fp8Format::kE4M3, 1), 256);
  EXPECT_EQ(PowerOfTwoScale(Fp8Format::kE5M2, 1), 32768);
  EXPECT_EQ(PowerOfTwoScale(Fp8Format::kE5M2, 57344.0f * 4), 0.25f);
}

// Over all magnitudes: a power of two that brings amax within a factor of two of the maximum, and
// whose inverse turns the largest and the smallest number of the format into finite bf16 numbers.
TEST(ScaleTest, KeepsFoldedValuesExactInBf16ForEveryAmax) {
  for (const Fp8Format format : kFormats) {
    const float min_subnormal =
        format == Fp8Format::kE4M3 ? E4M3::kMinSubnormal : E5M2::kMinSubnormal;
    for (uint64_t bits = 1; bits < 0x7F800000u; bits += 9973) {
      const float amax = std::bit_cast<float>(static_cast<uint32_t>(bits));
      const float scale = PowerOfTwoScale(format, amax);
      const uint32_t scale_bits = std::bit_cast<uint32_t>(scale);
      ASSERT_EQ(scale_bits & 0x7FFFFFu, 0u) << amax;
      ASSERT_TRUE(scale_bits > 0 && scale_bits < 0x7F800000u) << amax;
      ASSERT_EQ(InversePowerOfTwo(scale), 1 / scale) << amax;
      const float largest = Fp8Max(format) * (1 / scale);
      const float smallest = min_subnormal * (1 / scale);
      ASSERT_TRUE(std::isfinite(largest)) << amax;
      ASSERT_EQ(std::bit_cast<uint32_t>(smallest) & 0xFFFFu, 0u) << amax;
      ASSERT_GT(smallest, 0.0f) << amax;
      if (amax > 0x1p-100f && amax < 0x1p120f) {
        const double scaled = static_cast<double>(amax) * scale;
        ASSERT_LE(scaled, Fp8Max(format) * (1 + 0x1p-23)) << amax;
        ASSERT_GT(scaled, Fp8Max(format) * 0.4999) << amax;
      }
    }
  }
}

TEST(ScaleTest, HasAFiniteReciprocalForEveryAmax) {
  for (const Fp8Format format : kFormats) {
    for (uint64_t bits = 1; bits < 0x7F800000u; bits += 9973) {
      const float amax = std::bit_cast<float>(static_cast<uint32_t>(bits));
      for (const float scale : {CurrentScale(format, amax), DelayedScale(format, amax, 64, 1.0f)}) {
        ASSERT_TRUE(scale > 0 && std::isfinite(scale) && std::isfinite(1 / scale)) << amax;
      }
    }
  }
}

}  // namespace
}  // namespace cria::model
