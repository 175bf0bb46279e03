#include "model/io/q8_0.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "model/io/half.h"

namespace cria::model {
namespace {

constexpr uint16_t kHalfInfinity = 0x7c00;

}  // namespace

int64_t Q8RowBytes(int64_t n) {
  CRIA_CHECK_EQ(n % kQ8BlockElements, 0);
  return n / kQ8BlockElements * kQ8BlockBytes;
}

Status QuantizeQ8(const float* from, int64_t n, void* to) {
  CRIA_CHECK_EQ(n % kQ8BlockElements, 0);
  auto* out = static_cast<char*>(to);
  for (int64_t begin = 0; begin < n; begin += kQ8BlockElements, out += kQ8BlockBytes) {
    const float* x = from + begin;
    float max = 0;
    for (int64_t i = 0; i < kQ8BlockElements; ++i) {
      if (!std::isfinite(x[i])) {
        return InvalidArgumentError("element ", begin + i, " is ", x[i], ", which Q8_0 can't hold");
      }
      max = std::max(max, std::fabs(x[i]));
    }
    const float scale = max / 127.0f;
    const uint16_t half = HalfFromFloat(scale);
    if (half >= kHalfInfinity) {
      return InvalidArgumentError("elements from ", begin, " on reach ", max,
                                  ", whose scale Q8_0 can't hold");
    }
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    std::memcpy(out, &half, sizeof(half));
    for (int64_t i = 0; i < kQ8BlockElements; ++i) {
      // A subnormal scale may have an infinite inverse; the reference's cast is undefined there.
      const float q = std::round(std::clamp(x[i] * inverse, -127.0f, 127.0f));
      out[2 + i] = static_cast<char>(static_cast<int8_t>(q == q ? q : 0.0f));
    }
  }
  return OkStatus();
}

void DequantizeQ8(const void* from, int64_t n, float* to) {
  CRIA_CHECK_EQ(n % kQ8BlockElements, 0);
  const auto* in = static_cast<const char*>(from);
  for (int64_t begin = 0; begin < n; begin += kQ8BlockElements, in += kQ8BlockBytes) {
    uint16_t half;
    std::memcpy(&half, in, sizeof(half));
    const float scale = FloatFromHalf(half);
    for (int64_t i = 0; i < kQ8BlockElements; ++i) {
      to[begin + i] = scale * static_cast<float>(static_cast<int8_t>(in[2 + i]));
    }
  }
}

}  // namespace cria::model
