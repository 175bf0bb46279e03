// How values become something that MPI reduces, and come back: the types and reductions that MPI
// lacks (bfloat16, float16, avg), in chunks.
//
//   MpiReduction reduction({.dtype = DataType::kBfloat16, .op = ReduceOp::kAvg, .group_size = 8});
//   reduction.Encode(input, n, wire);       // n * wire_elements() elements of wire_dtype()
//   port->AllReduce(nullptr, wire, n * reduction.wire_elements(), reduction.wire_dtype(),
//                   reduction.wire_op(), wait);
//   reduction.Decode(wire, n, output);
//
// Floating point travels as float32, scaled for avg as comm/reduce does it; the average of integers
// as two int64, quotient and remainder by the group's size, so that no sum overflows.
// Internal to comm/mpi. Thread-compatible.

#ifndef CRIA_COMM_MPI_MPI_REDUCTION_H_
#define CRIA_COMM_MPI_MPI_REDUCTION_H_

#include <cstdint>

#include "comm/api/types.h"
#include "comm/reduce/reduce.h"

namespace cria::comm {

class MpiReduction {
 public:
  explicit MpiReduction(const ReduceKernel& kernel) : kernel_(kernel) {}

  // False when MPI takes the values as they are.
  bool needed() const {
    return kernel_.op == ReduceOp::kAvg || AccumulateType(kernel_.dtype) != kernel_.dtype;
  }
  DataType wire_dtype() const { return pairs() ? DataType::kInt64 : DataType::kFloat32; }
  ReduceOp wire_op() const { return kernel_.op == ReduceOp::kAvg ? ReduceOp::kSum : kernel_.op; }
  int wire_elements() const { return pairs() ? 2 : 1; }

  void Encode(const void* input, int64_t count, void* wire) const;
  void Decode(const void* wire, int64_t count, void* output) const;

 private:
  bool pairs() const { return AccumulateType(kernel_.dtype) != DataType::kFloat32; }

  const ReduceKernel kernel_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_MPI_MPI_REDUCTION_H_
