// The arithmetic of reductions: many sources, combined element by element in order, to many
// targets.
//
//   ReduceKernel kernel{.dtype = DataType::kBfloat16, .op = ReduceOp::kAvg, .group_size = 8};
//   RunReduce(kernel, sources, targets, count, /*non_temporal=*/true);
//
// A source is raw (elements of dtype, an operation's input) or a partial (elements of
// AccumulateType(dtype)); a target takes a partial or the finished value (divided for avg, rounded
// once to dtype). Sources may start at any byte; a target may be the same place as a source, never
// overlap one otherwise. The result depends only on the values and the order of the sources: the
// same bits for any count, alignment, instruction set, non_temporal or not.
//
// avg: raw sources are scaled by 2^-k, 2^k >= group_size, as they are read, and the sum is divided
// by group_size * 2^-k at the end, so that averages of values near the type's largest do not
// overflow; integers are summed in int64 (int64: in 128 bits) only where one kernel call sees all
// sources, and truncate toward zero. min and max of a NaN and anything is NaN; of -0 and +0,
// min is -0, max is +0. Integers wrap around.
//
// Thread-safe. Cost: reads each source once, writes each target once; non_temporal stores skip the
// caches (large results that nobody reads soon), and end with a store fence.
// Source: published practice of fp32 accumulators for 16-bit reductions (NCCL 2.27 notes).

#ifndef CRIA_COMM_REDUCE_REDUCE_H_
#define CRIA_COMM_REDUCE_REDUCE_H_

#include <cstdint>
#include <span>

#include "comm/api/types.h"

namespace cria::comm {

struct ReduceKernel {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int group_size = 1;  // what avg divides by
};

struct ReduceSource {
  const void* data = nullptr;
  bool partial = false;  // in AccumulateType(dtype), scaled already
};

struct ReduceTarget {
  void* data = nullptr;
  bool partial = false;
  bool streamed = false;  // by non-temporal stores in any case: another core's cache has it
};

// Combines one source or more into one target or more. dtype is Reducible.
void RunReduce(const ReduceKernel& kernel, std::span<const ReduceSource> sources,
               std::span<const ReduceTarget> targets, int64_t count, bool non_temporal = false);

// Copies bytes from one place to many; non_temporal as above. Places do not overlap unless equal.
void RunCopy(const void* source, std::span<void* const> targets, int64_t bytes,
             bool non_temporal = false);

}  // namespace cria::comm

#endif  // CRIA_COMM_REDUCE_REDUCE_H_
