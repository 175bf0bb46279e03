// The inner loops of reduce.h, compiled once per instruction set. Internal to comm/reduce and its
// tests, which compare all instruction sets of a machine. Thread-safe.

#ifndef CRIA_COMM_REDUCE_REDUCE_KERNELS_H_
#define CRIA_COMM_REDUCE_REDUCE_KERNELS_H_

#include <cstdint>

#include "base/cpu.h"
#include "comm/api/types.h"
#include "comm/reduce/reduce.h"

namespace cria::comm::reduce_internal {

// One pass: elements [first, first + count) of every source, combined in order, to one place.
struct KernelCall {
  const ReduceSource* sources = nullptr;
  int64_t num_sources = 0;
  int64_t first = 0;
  int64_t count = 0;
  void* out = nullptr;  // where element `first` goes; may be that element of a source
  bool out_partial = false;
  float scale = 1;    // avg of float types: raw values times this as they are read
  float divisor = 1;  // avg of float types: finished values divided by this
  int64_t group_size = 1;
};

using KernelFn = void (*)(const KernelCall& call);
// Copies with stores that skip the caches; no fence.
using StreamFn = void (*)(const void* source, void* target, int64_t bytes);

struct Kernels {
  KernelFn reduce[kNumDataTypes][kNumReduceOps];  // nullptr: not reducible
  StreamFn stream;
};

// The kernels for `isa`, which the CPU must have.
const Kernels& KernelsFor(Isa isa);

// RunReduce and RunCopy by given kernels.
void ReduceWith(const Kernels& kernels, const ReduceKernel& kernel,
                std::span<const ReduceSource> sources, std::span<const ReduceTarget> targets,
                int64_t count, bool non_temporal);
void CopyWith(const Kernels& kernels, const void* source, std::span<void* const> targets,
              int64_t bytes, bool non_temporal);

}  // namespace cria::comm::reduce_internal

// reduce_isa.cc defines one in each namespace.
namespace cria::comm::reduce_internal::generic {
extern const Kernels kKernels;
}
namespace cria::comm::reduce_internal::avx2 {
extern const Kernels kKernels;
}
namespace cria::comm::reduce_internal::avx512 {
extern const Kernels kKernels;
}

#endif  // CRIA_COMM_REDUCE_REDUCE_KERNELS_H_
