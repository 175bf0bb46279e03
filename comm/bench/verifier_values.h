// The values of the verifier: one element of one rank's input, and the combination of all ranks',
// as bytes of a type. Slow and plain: tables are made of them, and tests check the tables.
// Thread-safe.

#ifndef CRIA_COMM_BENCH_VERIFIER_VALUES_H_
#define CRIA_COMM_BENCH_VERIFIER_VALUES_H_

#include <cstddef>
#include <cstdint>

#include "comm/api/types.h"

namespace cria::comm {

struct ValueSpec {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  // for which the values are made
  int size = 1;                  // ranks
  uint64_t seed = 0;
};

// Writes ByteSize(dtype) bytes: the element `index` of the input of `rank`.
void WriteValue(const ValueSpec& spec, int rank, int64_t index, std::byte* to);

// The combination of that element of all ranks.
void WriteCombined(const ValueSpec& spec, int64_t index, std::byte* to);

// float32 to the 16-bit types, to nearest even.
uint16_t BfloatBits(float value);
uint16_t HalfBits(float value);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_VERIFIER_VALUES_H_
