// The words of the collectives: element types, reductions, operations.
//
// Reductions are defined for all but the FP8 types, which only travel. bfloat16 and float16 are
// summed in float32 and rounded once, at the end; integers wrap around; the average of integers
// truncates toward zero. Thread-safe: plain values.

#ifndef CRIA_COMM_API_TYPES_H_
#define CRIA_COMM_API_TYPES_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace cria::comm {

enum class DataType : uint8_t {
  kFloat32,
  kBfloat16,
  kFloat16,
  kFloat8E4M3,
  kFloat8E5M2,
  kInt8,
  kUint8,
  kInt16,
  kInt32,
  kInt64,
};
inline constexpr int kNumDataTypes = 10;

enum class ReduceOp : uint8_t { kSum, kAvg, kMin, kMax, kProd };
inline constexpr int kNumReduceOps = 5;

enum class OpKind : uint8_t {
  kAllReduce,
  kReduce,
  kBroadcast,
  kAllGather,
  kAllGatherV,
  kReduceScatter,
  kReduceScatterV,
  kAllToAll,
  kAllToAllV,
  kGather,
  kScatter,
  kSend,
  kRecv,
  kGroup,  // sends and receives between GroupStart and GroupEnd
  kBarrier,
};
inline constexpr int kNumOpKinds = 15;

// Bytes of one element.
int64_t ByteSize(DataType dtype);

// "float32", "sum", "all_reduce". The parsers also take nccl-tests' short names ("float",
// "bfloat16", "half", "int8"); InvalidArgument lists what there is.
const char* Name(DataType dtype);
const char* Name(ReduceOp op);
const char* Name(OpKind kind);
StatusOr<DataType> ParseDataType(const std::string& name);
StatusOr<ReduceOp> ParseReduceOp(const std::string& name);
StatusOr<OpKind> ParseOpKind(const std::string& name);

// False for the FP8 types.
bool Reducible(DataType dtype);

// In what a reduction of `dtype` adds up: float32 for bfloat16 and float16, else dtype itself.
DataType AccumulateType(DataType dtype);

// True for the kinds that combine values.
bool Reduces(OpKind kind);

}  // namespace cria::comm

#endif  // CRIA_COMM_API_TYPES_H_
