// One call on a communicator, in the form that every backend takes: what the options structs of
// communicator.h become. Backends and transports read it; users never make one.
//
// Which fields count, by kind (n ranks, `count` elements):
//
//   kind             input                        output                      root_or_peer
//   all_reduce       count                        count
//   reduce           count                        count, at the root          root
//   broadcast        count, at the root           count (= input at the root) root
//   all_gather       count                        n * count
//   all_gather_v     recv_counts[rank]            sum(recv_counts)
//   reduce_scatter   n * count                    count
//   reduce_scatter_v sum(send_counts)             send_counts[rank]
//   all_to_all       n * count                    n * count
//   all_to_all_v     sum(send_counts)             sum(recv_counts)
//   gather           count                        n * count, at the root      root
//   scatter          n * count, at the root       count                       root
//   send             count                                                    peer
//   recv                                          count                       peer
//   barrier
//
// Displacements, where given, say where each rank's part starts, in elements; without them the
// parts lie one after another. Thread-safe: a value; the pointers are the caller's until the end.

#ifndef CRIA_COMM_API_OPERATION_H_
#define CRIA_COMM_API_OPERATION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/api/types.h"

namespace cria::comm {

struct Operation {
  OpKind kind = OpKind::kBarrier;
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  const void* input = nullptr;
  void* output = nullptr;
  int64_t count = 0;
  int root_or_peer = -1;
  std::span<const int64_t> send_counts = {};
  std::span<const int64_t> recv_counts = {};
  std::span<const int64_t> send_displacements = {};
  std::span<const int64_t> recv_displacements = {};
  double timeout_s = 0;  // 0: the communicator's
  bool async = false;
};

// Elements of the input and of the output that this rank gives, by the table above; displacements
// included (the end of the last part). `operation` is valid.
int64_t InputElements(const Operation& operation, int rank, int size);
int64_t OutputElements(const Operation& operation, int rank, int size);

// Checks what one rank can check alone: counts of 0 or more and below 2^62 bytes, as many counts as
// ranks, root and peer in range, buffers where elements are, a type that reduces, input and output
// the same place (in place: equal, or the rank's own part of the larger one) or apart. OK or
// InvalidArgument that names the operation, the field and the value.
Status ValidateOperation(const Operation& operation, int rank, int size);

// True when input and output are one place as the operation allows it: equal starts, or for
// all_gather(v), gather the input at its place in the output, for reduce_scatter(v), scatter the
// output at its place in the input.
bool InPlace(const Operation& operation, int rank);

// The operation with its spans pointing into `storage`, for what outlives the caller's frame.
struct OwnedOperation {
  explicit OwnedOperation(const Operation& source);
  OwnedOperation(const OwnedOperation&) = delete;
  OwnedOperation& operator=(const OwnedOperation&) = delete;

  Operation operation;
  std::vector<int64_t> storage;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_API_OPERATION_H_
