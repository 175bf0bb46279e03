#include "model/io/q8_0.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/str.h"
#include "model/io/half.h"

namespace cria::model {
namespace {

std::string Quantized(const std::vector<float>& x) {
  std::string out(static_cast<size_t>(Q8RowBytes(static_cast<int64_t>(x.size()))), '\0');
  const Status status = QuantizeQ8(x.data(), static_cast<int64_t>(x.size()), out.data());
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

std::vector<float> Dequantized(const std::string& bytes) {
  std::vector<float> x(bytes.size() / kQ8BlockBytes * kQ8BlockElements);
  DequantizeQ8(bytes.data(), static_cast<int64_t>(x.size()), x.data());
  return x;
}

int Number(const std::string& bytes, size_t i) { return static_cast<int8_t>(bytes[2 + i]); }

TEST(Q8Test, ScalesByTheLargestAndRoundsHalvesAway) {
  std::vector<float> x(32, 0.0f);
  x[0] = -127;  // scale 1
  x[1] = 2.5f, x[2] = -2.5f, x[3] = 3.49f, x[4] = 126.5f;
  const std::string bytes = Quantized(x);
  uint16_t scale;
  std::memcpy(&scale, bytes.data(), 2);
  EXPECT_EQ(scale, HalfFromFloat(1.0f));
  EXPECT_EQ(Number(bytes, 0), -127);
  EXPECT_EQ(Number(bytes, 1), 3);
  EXPECT_EQ(Number(bytes, 2), -3);
  EXPECT_EQ(Number(bytes, 3), 3);
  EXPECT_EQ(Number(bytes, 4), 127);
  EXPECT_EQ(Dequantized(bytes)[4], 127.0f);
}

// The stored scale is rounded to fp16; the numbers are divided by the one that is not.
TEST(Q8Test, DividesByTheScaleBeforeItsRounding) {
  std::vector<float> x(32, 0.0f);
  x[0] = 1.0f;  // scale 1 / 127, no fp16
  x[1] = 0.4999f / 127;
  const std::string bytes = Quantized(x);
  EXPECT_EQ(Number(bytes, 0), 127);
  EXPECT_EQ(Number(bytes, 1), 0);
  uint16_t scale;
  std::memcpy(&scale, bytes.data(), 2);
  EXPECT_EQ(scale, HalfFromFloat(1.0f / 127));
}

TEST(Q8Test, GivesTheSameBytesFromItsOwnValuesAtEveryMagnitude) {
  const Rng rng(3, StreamOf("q8"));
  uint64_t n = 0;
  for (int exponent = -17; exponent <= 19; ++exponent) {
    for (int block = 0; block < 50; ++block) {
      std::vector<float> x;
      for (int i = 0; i < 32; ++i) x.push_back(std::ldexp(rng.Normal(n++), exponent));
      const std::string bytes = Quantized(x);
      EXPECT_EQ(Quantized(Dequantized(bytes)), bytes) << "2^" << exponent;
    }
  }
}

// The first exception of q8_0.h: the numbers were there, their scale is not.
TEST(Q8Test, LosesBlocksWhoseScaleRoundsToZero) {
  const std::string bytes = Quantized(std::vector<float>(32, 3e-6f));
  EXPECT_EQ(Number(bytes, 0), 127);
  for (const float x : Dequantized(bytes)) EXPECT_EQ(x, 0.0f);
  EXPECT_EQ(Number(Quantized(Dequantized(bytes)), 0), 0);
}

TEST(Q8Test, KeepsZerosAndTheTiniestNumbers) {
  EXPECT_EQ(Quantized(std::vector<float>(32, 0.0f)), std::string(34, '\0'));
  std::vector<float> x(32, std::numeric_limits<float>::denorm_min());
  x[1] = 0;
  x[2] = -x[0];
  for (const float y : Dequantized(Quantized(x))) EXPECT_EQ(y, 0.0f);
}

TEST(Q8Test, RefusesWhatItCanNotHoldWithThePlace) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 8.4e6f}) {
    std::vector<float> x(64, 1.0f);
    x[40] = bad;
    std::string out(68, '\0');
    const Status status = QuantizeQ8(x.data(), 64, out.data());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Message(status).find(bad == 8.4e6f ? "from 32" : "element 40"), std::string::npos)
        << status;
  }
}

}  // namespace
}  // namespace cria::model
