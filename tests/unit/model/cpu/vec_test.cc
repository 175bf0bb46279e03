// The vector functions under the kernels, for every instruction set that this CPU has.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "tests/unit/model/cpu/vec_probe.h"

namespace cria::model::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const VecProbe& ProbeOf(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return avx512::Probe();
    case Isa::kAvx2:
      return avx2::Probe();
    case Isa::kGeneric:
      break;
  }
  return generic::Probe();
}

class VecTest : public testing::TestWithParam<Isa> {
 protected:
  VecTest() : probe_(ProbeOf(GetParam())) {}

  void SetUp() override {
    if (GetParam() > ActiveIsa()) GTEST_SKIP() << "this CPU has no " << IsaName(GetParam());
  }

  // One lane of the function, the others busy with neighbours of x.
  float Lane0(void (*function)(const float*, float*), float x) const {
    float in[16], out[16];
    for (int i = 0; i < 16; ++i) in[i] = x + static_cast<float>(i);
    function(in, out);
    return out[0];
  }

  const VecProbe& probe_;
};

INSTANTIATE_TEST_SUITE_P(Isas, VecTest, testing::Values(Isa::kGeneric, Isa::kAvx2, Isa::kAvx512),
                         [](const testing::TestParamInfo<Isa>& info) {
                           return std::string(IsaName(info.param));
                         });

TEST_P(VecTest, ExpIsWithin2e7OverItsRange) {
  double worst = 0;
  float worst_at = 0;
  std::vector<float> in, out;
  const auto add = [&](float x) {
    if (x >= -87.3f && x <= 88.7f) in.push_back(x);
  };
  // Every 1009th float of either sign: all exponents from denormals up.
  for (uint32_t bits = 0; bits < 0x43000000u; bits += 1009) {
    add(std::bit_cast<float>(bits));
    add(std::bit_cast<float>(bits | 0x80000000u));
  }
  while (in.size() % 16 != 0) in.push_back(0);
  out.resize(in.size());
  for (size_t i = 0; i < in.size(); i += static_cast<size_t>(probe_.lanes)) {
    probe_.exp(in.data() + i, out.data() + i);
  }
  for (size_t i = 0; i < in.size(); ++i) {
    const double want = std::exp(static_cast<double>(in[i]));
    const double error = std::fabs(out[i] - want) / want;
    if (!(error <= worst)) {
      worst = error;
      worst_at = in[i];
    }
  }
  EXPECT_LT(worst, 2e-7) << "at " << worst_at;
}

TEST_P(VecTest, ExpOfTheEnds) {
  EXPECT_EQ(Lane0(probe_.exp, 0.0f), 1.0f);
  EXPECT_EQ(Lane0(probe_.exp, -0.0f), 1.0f);
  EXPECT_EQ(Lane0(probe_.exp, -kInfinity), 0.0f);
  EXPECT_EQ(Lane0(probe_.exp, -1e30f), 0.0f);
  EXPECT_EQ(Lane0(probe_.exp, -87.5f), 0.0f);
  EXPECT_EQ(Lane0(probe_.exp, 88.8f), kInfinity);
  EXPECT_EQ(Lane0(probe_.exp, 1e30f), kInfinity);
  EXPECT_EQ(Lane0(probe_.exp, kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Lane0(probe_.exp, std::nanf(""))));
}

TEST_P(VecTest, SigmoidStaysInZeroToOne) {
  EXPECT_EQ(Lane0(probe_.sigmoid, 0.0f), 0.5f);
  EXPECT_EQ(Lane0(probe_.sigmoid, kInfinity), 1.0f);
  EXPECT_EQ(Lane0(probe_.sigmoid, -kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(Lane0(probe_.sigmoid, std::nanf(""))));
  for (float x = -100; x <= 100; x += 0.37f) {
    const double want = 1 / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(Lane0(probe_.sigmoid, x), want, 3e-7 * want + 1e-38) << x;
  }
}

// To the nearest of the two bf16 numbers around x, the even one of a tie: by arithmetic on doubles.
uint16_t NearestBF16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto low = static_cast<uint16_t>(bits >> 16);
  if (std::isinf(x)) return low;
  const auto value = [](uint32_t upper) -> double {
    if ((upper & 0x7fffu) == 0x7f80u) return std::ldexp(upper & 0x8000u ? -1.0 : 1.0, 128);
    return std::bit_cast<float>(upper << 16);
  };
  const uint32_t high = low + 1u;  // the next one away from zero
  const double below = std::fabs(x - value(low));
  const double above = std::fabs(value(high) - x);
  if (below != above) return below < above ? low : static_cast<uint16_t>(high);
  return low % 2 == 0 ? low : static_cast<uint16_t>(high);
}

TEST_P(VecTest, RoundsToTheNearestBF16AndNaNStaysNaN) {
  // All upper halves with lower halves around the tie and the ends.
  constexpr uint32_t kLower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  int mismatches = 0;
  for (uint32_t upper = 0; upper < 0x10000u; ++upper) {
    float in[16];
    BF16 out[16];
    for (int i = 0; i < 16; ++i) {
      in[i] = std::bit_cast<float>(upper << 16 | kLower[static_cast<size_t>(i) % 6]);
    }
    for (int i = 0; i < 16; i += probe_.lanes) probe_.to_bf16(in + i, out + i);
    for (int i = 0; i < 6; ++i) {
      BF16 one;
      probe_.to_bf16_one(&in[i], &one);
      EXPECT_EQ(one.bits, out[i].bits);
      const float back = std::bit_cast<float>(static_cast<uint32_t>(out[i].bits) << 16);
      const bool right = std::isnan(in[i]) ? std::isnan(back) : out[i].bits == NearestBF16(in[i]);
      if (!right && mismatches++ < 10) {
        ADD_FAILURE() << std::hex << std::bit_cast<uint32_t>(in[i]) << " became " << out[i].bits;
      }
    }
  }
  EXPECT_EQ(mismatches, 0);
}

TEST_P(VecTest, WideningBF16IsExact) {
  for (uint32_t upper = 0; upper < 0x10000u; upper += 16) {
    BF16 in[16];
    float out[16];
    for (uint32_t i = 0; i < 16; ++i) in[i].bits = static_cast<uint16_t>(upper + i);
    for (int i = 0; i < 16; i += probe_.lanes) probe_.from_bf16(in + i, out + i);
    for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), (upper + i) << 16);
  }
}

TEST_P(VecTest, ReducesOverAllLanes) {
  float x[16];
  float sum = 0;
  for (int i = 0; i < probe_.lanes; ++i) {
    x[i] = static_cast<float>(1 << i);
    sum += x[i];
  }
  EXPECT_EQ(probe_.sum_lanes(x), sum);
  for (int at = 0; at < probe_.lanes; ++at) {
    for (int i = 0; i < probe_.lanes; ++i) x[i] = i == at ? -1.0f : -2.0f;
    EXPECT_EQ(probe_.max_lanes(x), -1.0f);
  }
}

}  // namespace
}  // namespace cria::model::cpu
