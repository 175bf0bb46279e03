#include "comm/mpi/mpi_reduction.h"

#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace cria::comm {
namespace {

// input[i] = quotient * n + remainder, into wire[2i], wire[2i + 1].
template <typename T>
void EncodePairs(const void* input, int64_t count, int64_t n, std::byte* wire) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, static_cast<const std::byte*>(input) + i * int64_t{sizeof(T)}, sizeof(T));
    const int64_t pair[2] = {static_cast<int64_t>(value) / n, static_cast<int64_t>(value) % n};
    std::memcpy(wire + i * int64_t{sizeof(pair)}, pair, sizeof(pair));
  }
}

// (quotients * n + remainders) / n, toward zero. |remainders| < n * n.
int64_t Average(int64_t quotients, int64_t remainders, int64_t n) {
  int64_t floor = remainders / n;
  int64_t rest = remainders % n;
  if (rest < 0) {
    --floor;
    rest += n;
  }
  const int64_t down = quotients + floor;
  return down < 0 && rest > 0 ? down + 1 : down;
}

template <typename T>
void DecodePairs(const std::byte* wire, int64_t count, int64_t n, void* output) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t pair[2];
    std::memcpy(pair, wire + i * int64_t{sizeof(pair)}, sizeof(pair));
    const T value = static_cast<T>(Average(pair[0], pair[1], n));
    std::memcpy(static_cast<std::byte*>(output) + i * int64_t{sizeof(T)}, &value, sizeof(T));
  }
}

// Calls function with a value of the integer type.
template <typename Function>
void ForInteger(DataType dtype, const Function& function) {
  switch (dtype) {
    case DataType::kInt8:
      return function(int8_t{});
    case DataType::kUint8:
      return function(uint8_t{});
    case DataType::kInt16:
      return function(int16_t{});
    case DataType::kInt32:
      return function(int32_t{});
    case DataType::kInt64:
      return function(int64_t{});
    default:
      CRIA_CHECK(false, Name(dtype), " is no integer");
  }
}

}  // namespace

void MpiReduction::Encode(const void* input, int64_t count, void* wire) const {
  if (pairs()) {
    ForInteger(kernel_.dtype, [&](auto zero) {
      EncodePairs<decltype(zero)>(input, count, kernel_.group_size, static_cast<std::byte*>(wire));
    });
    return;
  }
  const ReduceSource sources[] = {{.data = input, .partial = false}};
  const ReduceTarget targets[] = {{.data = wire, .partial = true}};
  RunReduce(kernel_, sources, targets, count);
}

void MpiReduction::Decode(const void* wire, int64_t count, void* output) const {
  if (pairs()) {
    ForInteger(kernel_.dtype, [&](auto zero) {
      DecodePairs<decltype(zero)>(static_cast<const std::byte*>(wire), count, kernel_.group_size,
                                  output);
    });
    return;
  }
  const ReduceSource sources[] = {{.data = wire, .partial = true}};
  const ReduceTarget targets[] = {{.data = output, .partial = false}};
  RunReduce(kernel_, sources, targets, count);
}

}  // namespace cria::comm
