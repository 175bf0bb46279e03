// Every kernel of every instruction set that this CPU has, against a scalar oracle that shares no
// code with them.

#include "comm/reduce/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/rng.h"
#include "comm/reduce/reduce_kernels.h"

namespace cria::comm::reduce_internal {
namespace {

std::vector<Isa> Isas() {
  std::vector<Isa> isas = {Isa::kGeneric};
  if (ActiveIsa() >= Isa::kAvx2) isas.push_back(Isa::kAvx2);
  if (ActiveIsa() >= Isa::kAvx512) isas.push_back(Isa::kAvx512);
  return isas;
}

const DataType kReducible[] = {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16,
                               DataType::kInt8,    DataType::kUint8,    DataType::kInt16,
                               DataType::kInt32,   DataType::kInt64};
const ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax,
                         ReduceOp::kProd};

bool IsFloat(DataType dtype) {
  return dtype == DataType::kFloat32 || dtype == DataType::kBfloat16 || dtype == DataType::kFloat16;
}

// --- The oracle's number formats, by definition of the formats. ---

// A format with `mantissa` stored bits and this exponent bias, values as double.
double Decode(uint32_t bits, int exponent_bits, int mantissa) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t fraction = bits & ((1u << mantissa) - 1);
  const int exponent = static_cast<int>(bits >> mantissa) & ((1 << exponent_bits) - 1);
  const double sign = (bits >> (mantissa + exponent_bits)) & 1 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp((1u << mantissa) + fraction, exponent - bias - mantissa);
}

// To nearest, ties to even; the canonical NaN.
uint32_t Encode(double x, int exponent_bits, int mantissa) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa;
  if (std::isnan(x)) return infinity | 1u << (mantissa - 1);
  const uint32_t sign = std::signbit(x) ? 1u << (mantissa + exponent_bits) : 0;
  if (std::isinf(x)) return sign | infinity;
  if (x == 0) return sign;
  const int exponent = std::max(std::ilogb(x), 1 - bias);
  // nearbyint rounds to even; a carry moves into the exponent by itself.
  const auto steps =
      static_cast<uint32_t>(std::nearbyint(std::ldexp(std::fabs(x), mantissa - exponent)));
  const uint32_t bits = steps + (static_cast<uint32_t>(exponent + bias - 1) << mantissa);
  return sign | std::min(bits, infinity);
}

float ValueOf(DataType dtype, uint16_t bits) {
  return static_cast<float>(dtype == DataType::kBfloat16 ? Decode(bits, 8, 7)
                                                         : Decode(bits, 5, 10));
}

float LoadFloat(DataType dtype, const std::byte* p) {
  if (dtype == DataType::kFloat32) {
    float x;
    std::memcpy(&x, p, 4);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return ValueOf(dtype, bits);
}

void StoreFloat(DataType dtype, float x, std::byte* p) {
  if (dtype == DataType::kFloat32) {
    const uint32_t bits = std::isnan(x) ? 0x7FC00000u : std::bit_cast<uint32_t>(x);
    std::memcpy(p, &bits, 4);
    return;
  }
  const auto bits =
      static_cast<uint16_t>(dtype == DataType::kBfloat16 ? Encode(x, 8, 7) : Encode(x, 5, 10));
  std::memcpy(p, &bits, 2);
}

float CombineFloat(ReduceOp op, float a, float b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return a + b;
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMin:
      if (std::isnan(a) || std::isnan(b)) return NAN;
      if (a == 0 && b == 0) return std::signbit(a) ? a : b;
      return a < b ? a : b;
    case ReduceOp::kMax:
      if (std::isnan(a) || std::isnan(b)) return NAN;
      if (a == 0 && b == 0) return std::signbit(a) ? b : a;
      return a > b ? a : b;
  }
  return 0;
}

__int128 LoadInteger(DataType dtype, const std::byte* p) {
  uint64_t bits = 0;
  std::memcpy(&bits, p, static_cast<size_t>(ByteSize(dtype)));
  if (dtype == DataType::kUint8) return static_cast<uint8_t>(bits);
  const int unused = 64 - 8 * static_cast<int>(ByteSize(dtype));
  return static_cast<int64_t>(bits << unused) >> unused;
}

__int128 CombineInteger(ReduceOp op, __int128 a, __int128 b) {
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  if (op == ReduceOp::kProd) {
    return static_cast<__int128>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
  return a + b;
}

struct Case {
  ReduceKernel kernel;
  int num_sources = 1;
  int64_t count = 0;
  int64_t offset = 0;  // of the first source from a cache line, in bytes; those of others follow
  std::string Describe() const {
    return std::string(Name(kernel.dtype)) + " " + Name(kernel.op) + " of " +
           std::to_string(num_sources) + " sources, count " + std::to_string(count) + ", offset " +
           std::to_string(offset);
  }
};

// The finished element and the partial one.
void Expect(const Case& c, const std::vector<const std::byte*>& sources, int64_t i,
            std::byte* finished, std::byte* partial) {
  const DataType dtype = c.kernel.dtype;
  const int64_t bytes = ByteSize(dtype);
  if (!IsFloat(dtype)) {
    __int128 total = LoadInteger(dtype, sources[0] + i * bytes);
    for (size_t s = 1; s < sources.size(); ++s) {
      total = CombineInteger(c.kernel.op, total, LoadInteger(dtype, sources[s] + i * bytes));
    }
    const __int128 result = c.kernel.op == ReduceOp::kAvg ? total / c.kernel.group_size : total;
    std::memcpy(finished, &result, static_cast<size_t>(bytes));
    std::memcpy(partial, &total, static_cast<size_t>(bytes));
    return;
  }
  float power = 1;
  while (c.kernel.op == ReduceOp::kAvg && power * static_cast<float>(c.kernel.group_size) > 1) {
    power /= 2;
  }
  float total = LoadFloat(dtype, sources[0] + i * bytes) * power;
  for (size_t s = 1; s < sources.size(); ++s) {
    total = CombineFloat(c.kernel.op, total, LoadFloat(dtype, sources[s] + i * bytes) * power);
  }
  StoreFloat(DataType::kFloat32, total, partial);
  if (c.kernel.op == ReduceOp::kAvg) total /= static_cast<float>(c.kernel.group_size) * power;
  StoreFloat(dtype, total, finished);
}

// Bytes that no two places share, with NaN, infinities, subnormals among the floats.
std::vector<std::byte> Values(const Case& c, int source, const Rng& rng) {
  const int64_t bytes = ByteSize(c.kernel.dtype);
  std::vector<std::byte> values(static_cast<size_t>(c.count * bytes));
  for (int64_t i = 0; i < c.count; ++i) {
    const uint64_t index = static_cast<uint64_t>(source * c.count + i);
    uint64_t bits = rng.U64(index);
    std::byte element[8];
    if (IsFloat(c.kernel.dtype) && bits % 16 != 0) {
      StoreFloat(c.kernel.dtype, rng.Normal(index), element);
    } else {
      bits >>= 8;  // any pattern
      std::memcpy(element, &bits, 8);
    }
    std::memcpy(values.data() + i * bytes, element, static_cast<size_t>(bytes));
  }
  return values;
}

// Memory in which a value starts `offset` bytes past a cache line, with guards around it.
class Place {
 public:
  Place(int64_t bytes, int64_t offset)
      : memory_(static_cast<size_t>(bytes + 64 + offset + 64 + 64), std::byte{0xA5}) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    start_ = memory_.data() + (-address & 63u) + 64 + offset;
    bytes_ = bytes;
  }
  std::byte* data() { return start_; }
  bool GuardsHold() const {
    const auto whole = [](std::byte b) { return b == std::byte{0xA5}; };
    return std::all_of(memory_.data(), static_cast<const std::byte*>(start_), whole) &&
           std::all_of(start_ + bytes_, const_cast<std::byte*>(memory_.data() + memory_.size()),
                       whole);
  }

 private:
  std::vector<std::byte> memory_;
  std::byte* start_ = nullptr;
  int64_t bytes_ = 0;
};

void CheckCase(const Case& c, Isa isa, bool non_temporal) {
  SCOPED_TRACE(c.Describe() + " on " + IsaName(isa) + (non_temporal ? ", non-temporal" : ""));
  const Rng rng(7, StreamOf(c.Describe()));
  const int64_t raw = ByteSize(c.kernel.dtype);
  const int64_t wide = ByteSize(AccumulateType(c.kernel.dtype));
  std::vector<std::vector<std::byte>> values;
  std::vector<Place> places;
  std::vector<const std::byte*> pointers;
  std::vector<ReduceSource> sources;
  for (int s = 0; s < c.num_sources; ++s) {
    values.push_back(Values(c, s, rng));
    pointers.push_back(values.back().data());
    places.emplace_back(c.count * raw, (c.offset + 3 * s) % 64);
    std::copy(values.back().begin(), values.back().end(), places.back().data());
    sources.push_back({.data = places.back().data()});
  }
  std::vector<std::byte> finished(static_cast<size_t>(c.count * raw));
  std::vector<std::byte> partial(static_cast<size_t>(c.count * wide));
  for (int64_t i = 0; i < c.count; ++i) {
    Expect(c, pointers, i, finished.data() + i * raw, partial.data() + i * wide);
  }
  const auto run = [&](std::span<const ReduceTarget> targets) {
    ReduceWith(KernelsFor(isa), c.kernel, sources, targets, c.count, non_temporal);
  };
  const auto same = [](std::byte* data, const std::vector<std::byte>& expected) {
    return std::equal(expected.begin(), expected.end(), data);
  };
  Place alone(c.count * raw, (c.offset * 7) % 64);
  run(std::vector<ReduceTarget>{{.data = alone.data()}});
  ASSERT_TRUE(same(alone.data(), finished) && alone.GuardsHold());

  Place other(c.count * raw, 5);
  Place sum(c.count * wide, (c.offset * 5) % 64);
  run(std::vector<ReduceTarget>{{.data = sum.data(), .partial = true}});
  ASSERT_TRUE(same(sum.data(), partial) && sum.GuardsHold());

  // In place: the targets are sources, as the output of an all-reduce is.
  std::vector<ReduceTarget> targets = {{.data = other.data()},
                                       {.data = sum.data(), .partial = true, .streamed = true}};
  for (Place& place : places) targets.push_back({.data = place.data()});
  run(targets);
  ASSERT_TRUE(same(other.data(), finished) && other.GuardsHold());
  ASSERT_TRUE(same(sum.data(), partial) && sum.GuardsHold());
  for (Place& place : places) ASSERT_TRUE(same(place.data(), finished) && place.GuardsHold());
}

class ReduceTest : public testing::TestWithParam<DataType> {};

TEST_P(ReduceTest, MatchesTheOracleForEachOperationAndCount) {
  for (const Isa isa : Isas()) {
    for (const ReduceOp op : kOps) {
      for (const int num_sources : {1, 2, 3, 5, 8, 17, 40}) {
        for (const int64_t count : {0,  1,  2,  3,  4,  5,  6,  7,  8,   9,    10,  11,
                                    12, 13, 14, 15, 16, 17, 31, 64, 127, 1000, 5003}) {
          if (count > 200 && num_sources > 8 && count != 1000) continue;
          const Case c = {.kernel = {.dtype = GetParam(), .op = op, .group_size = num_sources},
                          .num_sources = num_sources,
                          .count = count,
                          .offset = count % 3};
          CheckCase(c, isa, /*non_temporal=*/count % 2 == 1);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(ReduceTest, DoesNotDependOnAlignment) {
  for (const Isa isa : Isas()) {
    for (int64_t offset = 0; offset < 64; ++offset) {
      for (const bool non_temporal : {false, true}) {
        const Case c = {.kernel = {.dtype = GetParam(), .op = ReduceOp::kAvg, .group_size = 3},
                        .num_sources = 3,
                        .count = 2150,
                        .offset = offset};
        CheckCase(c, isa, non_temporal);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(ReduceTest, PartialSourcesContinueASum) {
  // (a + b) stored as a partial, then + c, is a + b + c in one go: also for more than 16 sources.
  for (const Isa isa : Isas()) {
    for (const ReduceOp op : kOps) {
      if (op == ReduceOp::kAvg && !IsFloat(GetParam())) continue;
      const ReduceKernel kernel = {.dtype = GetParam(), .op = op, .group_size = 20};
      const Case c = {.kernel = kernel, .num_sources = 20, .count = 333};
      const Rng rng(3, 4);
      std::vector<std::vector<std::byte>> values;
      std::vector<ReduceSource> sources;
      for (int s = 0; s < 20; ++s) values.push_back(Values(c, s, rng));
      for (const auto& v : values) sources.push_back({.data = v.data()});
      std::vector<std::byte> at_once(333 * 8);
      std::vector<std::byte> by_parts(333 * 8);
      std::vector<std::byte> sum(333 * 8);
      ReduceWith(KernelsFor(isa), kernel, sources, {{{.data = at_once.data()}}}, 333, false);
      ReduceWith(KernelsFor(isa), kernel, std::span(sources).first(2),
                 {{{.data = sum.data(), .partial = true}}}, 333, false);
      std::vector<ReduceSource> rest(sources.begin() + 2, sources.end());
      rest.insert(rest.begin(), {.data = sum.data(), .partial = true});
      ReduceWith(KernelsFor(isa), kernel, rest, {{{.data = by_parts.data()}}}, 333, false);
      ASSERT_EQ(at_once, by_parts) << Name(GetParam()) << " " << Name(op) << " " << IsaName(isa);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, ReduceTest, testing::ValuesIn(kReducible),
                         [](const auto& info) { return std::string(Name(info.param)); });

// The sixteen-bit formats, every pattern: what goes in comes out, and NaN stays NaN.
TEST(ReduceFormatTest, EverySixteenBitValueSurvives) {
  for (const Isa isa : Isas()) {
    for (const DataType dtype : {DataType::kBfloat16, DataType::kFloat16}) {
      std::vector<uint16_t> all(65536);
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
      std::vector<uint16_t> out(65536);
      std::vector<float> wide(65536);
      const ReduceKernel kernel = {.dtype = dtype};
      const ReduceSource source = {.data = all.data()};
      ReduceWith(KernelsFor(isa), kernel, {&source, 1},
                 {{{.data = out.data()}, {.data = wide.data(), .partial = true}}}, 65536, false);
      for (size_t i = 0; i < all.size(); ++i) {
        const float x = ValueOf(dtype, all[i]);
        if (std::isnan(x)) {
          ASSERT_TRUE(std::isnan(wide[i]));
          ASSERT_TRUE(std::isnan(ValueOf(dtype, out[i])));
        } else {
          ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(x)) << i;
          ASSERT_EQ(out[i], all[i]);
        }
      }
    }
  }
}

// Rounding of partial sums to sixteen bits, around every boundary between two values.
TEST(ReduceFormatTest, RoundsToNearestEven) {
  for (const Isa isa : Isas()) {
    for (const DataType dtype : {DataType::kBfloat16, DataType::kFloat16}) {
      std::vector<float> wide;
      for (uint32_t i = 0; i < 65536; ++i) {
        const float x = ValueOf(dtype, static_cast<uint16_t>(i));
        // Half a step above the value: the tie, and its neighbours.
        const int half = dtype == DataType::kBfloat16 ? 0x8000 : 0x1000;
        for (const int delta : {0, half - 1, half, half + 1}) {
          wide.push_back(
              std::bit_cast<float>(std::bit_cast<uint32_t>(x) + static_cast<uint32_t>(delta)));
        }
      }
      std::vector<uint16_t> out(wide.size());
      const ReduceSource source = {.data = wide.data(), .partial = true};
      ReduceWith(KernelsFor(isa), {.dtype = dtype}, {&source, 1}, {{{.data = out.data()}}},
                 static_cast<int64_t>(wide.size()), false);
      for (size_t i = 0; i < wide.size(); ++i) {
        uint16_t expected;
        StoreFloat(dtype, wide[i], reinterpret_cast<std::byte*>(&expected));
        ASSERT_EQ(out[i], expected) << Name(dtype) << " of " << wide[i] << " " << IsaName(isa);
      }
    }
  }
}

// torchcomms#4069: averages of values near the largest overflowed in an unscaled sum.
TEST(ReduceAvgTest, DoesNotOverflowNearTheLargestValue) {
  for (const Isa isa : Isas()) {
    const float largest = 3.3895313892515355e38f;  // bfloat16's
    uint16_t large;
    StoreFloat(DataType::kBfloat16, largest, reinterpret_cast<std::byte*>(&large));
    std::vector<uint16_t> bf16(100, large);
    std::vector<float> f32(100, std::numeric_limits<float>::max());
    std::vector<int64_t> i64(100, std::numeric_limits<int64_t>::min());
    const std::vector<ReduceSource> of_bf16(10, {.data = bf16.data()});
    const std::vector<ReduceSource> of_f32(10, {.data = f32.data()});
    const std::vector<ReduceSource> of_i64(10, {.data = i64.data()});
    std::vector<uint16_t> bf16_out(100);
    std::vector<float> f32_out(100);
    std::vector<int64_t> i64_out(100);
    const auto run = [isa](DataType dtype, const std::vector<ReduceSource>& sources, void* out) {
      ReduceWith(KernelsFor(isa), {.dtype = dtype, .op = ReduceOp::kAvg, .group_size = 10}, sources,
                 {{{.data = out}}}, 100, false);
    };
    run(DataType::kBfloat16, of_bf16, bf16_out.data());
    run(DataType::kFloat32, of_f32, f32_out.data());
    run(DataType::kInt64, of_i64, i64_out.data());
    EXPECT_EQ(bf16_out, bf16);
    EXPECT_EQ(i64_out, i64);
    EXPECT_TRUE(std::isfinite(f32_out[0]));
    EXPECT_NEAR(f32_out[99] / std::numeric_limits<float>::max(), 1, 1e-6);
  }
}

// NVIDIA/nccl#1026: sums of sixteen-bit values lost a bit a hop. Positive values, so that float32's
// own error, p * 2^-24 of the sum, is far below bfloat16's half step of 2^-9.
TEST(ReduceAccuracyTest, ErrorIsHalfAnUlpOfBfloat16ForUpTo64Ranks) {
  for (const int p : {2, 3, 8, 17, 64}) {
    const Case c = {.kernel = {.dtype = DataType::kBfloat16, .group_size = p}, .count = 500};
    std::vector<std::vector<uint16_t>> values(static_cast<size_t>(p));
    std::vector<ReduceSource> sources;
    const Rng rng(11, static_cast<uint64_t>(p));
    for (size_t s = 0; s < values.size(); ++s) {
      for (uint64_t i = 0; i < 500; ++i) {
        uint16_t bits;
        StoreFloat(DataType::kBfloat16, static_cast<float>(rng.Uniform(s * 500 + i)) + 1e-3f,
                   reinterpret_cast<std::byte*>(&bits));
        values[s].push_back(bits);
      }
      sources.push_back({.data = values[s].data()});
    }
    std::vector<uint16_t> out(500);
    RunReduce(c.kernel, sources, {{{.data = out.data()}}}, 500);
    for (size_t i = 0; i < 500; ++i) {
      double exact = 0;
      for (const auto& v : values) exact += Decode(v[i], 8, 7);
      const double ulp = std::ldexp(1.0, std::ilogb(exact) - 7);
      ASSERT_LE(std::fabs(Decode(out[i], 8, 7) - exact), ulp * 0.5 * (1 + p * 0x1p-15));
    }
  }
}

TEST(ReduceCopyTest, ReachesEveryTarget) {
  for (const Isa isa : Isas()) {
    for (const bool non_temporal : {false, true}) {
      for (const int64_t bytes : {0, 1, 2, 3, 17, 63, 64, 65, 4096, 40000}) {
        for (const int64_t offset : {0, 1, 32, 63}) {
          const Rng rng(1, static_cast<uint64_t>(bytes));
          Place source(bytes, 64 - offset);
          for (int64_t i = 0; i < bytes; ++i) {
            source.data()[i] = static_cast<std::byte>(rng.U64(static_cast<uint64_t>(i)));
          }
          Place a(bytes, offset);
          Place b(bytes, (offset + 7) % 64);
          void* const targets[] = {a.data(), source.data(), b.data()};
          CopyWith(KernelsFor(isa), source.data(), targets, bytes, non_temporal);
          EXPECT_TRUE(std::equal(a.data(), a.data() + bytes, source.data()));
          EXPECT_TRUE(std::equal(b.data(), b.data() + bytes, source.data()));
          EXPECT_TRUE(a.GuardsHold() && b.GuardsHold() && source.GuardsHold());
        }
      }
    }
  }
}

}  // namespace
}  // namespace cria::comm::reduce_internal
