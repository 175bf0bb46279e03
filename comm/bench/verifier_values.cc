#include "comm/bench/verifier_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace cria::comm {
namespace {

uint64_t Mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9e3779b97f4a7c15;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9;
  return x ^ (x >> 32);
}

bool IsInteger(DataType dtype) { return dtype >= DataType::kInt8; }

// What the bytes of an integer type hold after `value` went in: it wraps around.
int64_t Wrapped(DataType dtype, int64_t value) {
  switch (dtype) {
    case DataType::kInt8:
      return static_cast<int8_t>(value);
    case DataType::kUint8:
      return static_cast<uint8_t>(value);
    case DataType::kInt16:
      return static_cast<int16_t>(value);
    case DataType::kInt32:
      return static_cast<int32_t>(value);
    default:
      return value;
  }
}

// The value of an element, exact in every type that reduces.
int64_t IdealValue(const ValueSpec& spec, int rank, int64_t index) {
  const auto i = static_cast<uint64_t>(index);
  const uint64_t of_rank = Mix(Mix(i + spec.seed) + static_cast<uint64_t>(rank) + 1);
  if (spec.op == ReduceOp::kProd) {
    // Of all ranks at one place one has 2 or 4, the others signs: no product overflows.
    const uint64_t of_place = Mix(i + spec.seed + 7);
    const bool chosen = of_place % static_cast<uint64_t>(spec.size) == static_cast<uint64_t>(rank);
    const int64_t sign = (of_rank & 1) != 0 ? -1 : 1;
    return chosen ? sign * ((of_place >> 40 & 1) != 0 ? 2 : 4) : sign;
  }
  if (spec.op == ReduceOp::kMin || spec.op == ReduceOp::kMax) {
    return static_cast<int64_t>(of_rank % 241) - 120;
  }
  // bfloat16 holds integers up to 256: sums of up to 64 ranks stay below.
  return static_cast<int64_t>(of_rank % 8) - 3;
}

template <typename T>
void Store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(T));
}

void StoreFloat(DataType dtype, float value, std::byte* to) {
  if (dtype == DataType::kFloat32) return Store(value, to);
  Store(dtype == DataType::kBfloat16 ? BfloatBits(value) : HalfBits(value), to);
}

void StoreInteger(DataType dtype, int64_t value, std::byte* to) {
  std::memcpy(to, &value, static_cast<size_t>(ByteSize(dtype)));  // little endian
}

int64_t Combine(ReduceOp op, int64_t a, int64_t b) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProd:
      return a * b;
    default:
      return a + b;
  }
}

}  // namespace

static_assert(std::endian::native == std::endian::little);

uint16_t BfloatBits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t HalfBits(float value) {
  // The values here are normal in float16, or zero.
  if (value == 0) return std::signbit(value) ? 0x8000 : 0;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const auto exponent = static_cast<int32_t>(bits >> 23 & 0xff) - 127 + 15;
  CRIA_CHECK(exponent > 0 && exponent < 31, "no normal float16: ", value);
  const uint32_t magnitude = static_cast<uint32_t>(exponent) << 23 | (bits & 0x7fffff);
  return static_cast<uint16_t>(sign | (magnitude + 0xfff + ((magnitude >> 13) & 1)) >> 13);
}

void WriteValue(const ValueSpec& spec, int rank, int64_t index, std::byte* to) {
  if (!Reducible(spec.dtype)) {
    const uint64_t bits =
        Mix(Mix(static_cast<uint64_t>(index) + spec.seed) + static_cast<uint64_t>(rank) + 1);
    return Store(static_cast<uint8_t>(bits), to);
  }
  const int64_t value = IdealValue(spec, rank, index);
  if (IsInteger(spec.dtype)) return StoreInteger(spec.dtype, value, to);
  StoreFloat(spec.dtype, static_cast<float>(value), to);
}

void WriteCombined(const ValueSpec& spec, int64_t index, std::byte* to) {
  const bool integer = IsInteger(spec.dtype);
  int64_t all = 0;
  for (int r = 0; r < spec.size; ++r) {
    int64_t value = IdealValue(spec, r, index);
    if (integer) value = Wrapped(spec.dtype, value);
    all = r == 0 ? value : Combine(spec.op, all, value);
  }
  const bool average = spec.op == ReduceOp::kAvg;
  if (integer) return StoreInteger(spec.dtype, average ? all / spec.size : all, to);
  const auto sum = static_cast<float>(all);
  StoreFloat(spec.dtype, average ? sum / static_cast<float>(spec.size) : sum, to);
}

}  // namespace cria::comm
