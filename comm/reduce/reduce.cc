#include "comm/reduce/reduce.h"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "comm/reduce/reduce_kernels.h"

namespace cria::comm {
namespace reduce_internal {
namespace {

// What passes through the first-level cache on its way to several targets.
constexpr int64_t kBlockBytes = 4096;
// Above this many sources in one pass, the prefetchers lose track: partial sums go by the cache.
constexpr int64_t kSourcesAtOnce = 16;
// Copies of this size and below are a memcpy per target.
constexpr int64_t kCopyBlockBytes = 16384;

bool IsInteger(DataType dtype) {
  return Reducible(dtype) && AccumulateType(dtype) == dtype && dtype != DataType::kFloat32;
}

const std::byte* At(const void* data, int64_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}
std::byte* At(void* data, int64_t offset) { return static_cast<std::byte*>(data) + offset; }

// One RunReduce: where what lies, and the passes.
class Reduction {
 public:
  Reduction(const Kernels& kernels, const ReduceKernel& kernel,
            std::span<const ReduceSource> sources, std::span<const ReduceTarget> targets)
      : kernels_(kernels),
        kernel_(kernels.reduce[static_cast<size_t>(kernel.dtype)][static_cast<size_t>(kernel.op)]),
        sources_(sources),
        targets_(targets),
        raw_bytes_(ByteSize(kernel.dtype)),
        partial_bytes_(ByteSize(AccumulateType(kernel.dtype))) {
    call_.group_size = kernel.group_size;
    if (kernel.op == ReduceOp::kAvg && !IsInteger(kernel.dtype)) {
      const int bits = std::bit_width(static_cast<unsigned>(kernel.group_size - 1));
      call_.scale = std::ldexp(1.0f, -bits);
      call_.divisor = static_cast<float>(kernel.group_size) * call_.scale;
    }
    // A sum of integers must not be cut into parts that wrap around before it is divided.
    integer_avg_ = kernel.op == ReduceOp::kAvg && IsInteger(kernel.dtype);
    one_pass_ = static_cast<int64_t>(sources.size()) <= kSourcesAtOnce || integer_avg_;
    two_forms_ = raw_bytes_ != partial_bytes_ || kernel.op == ReduceOp::kAvg;
  }

  // Returns whether anything went around the caches.
  bool Run(int64_t count, bool non_temporal) {
    const bool streamed = std::any_of(targets_.begin(), targets_.end(),
                                      [](const auto& target) { return target.streamed; });
    const bool mixed = std::any_of(targets_.begin(), targets_.end(), [this](const auto& target) {
      return two_forms_ && target.partial != targets_[0].partial;
    });
    if (targets_.size() == 1 && one_pass_ && !non_temporal && !streamed) {
      Pass(0, count, targets_[0].data, targets_[0].partial);
      return false;
    }
    const int64_t block = kBlockBytes / raw_bytes_;
    for (int64_t first = 0; first < count;) {
      int64_t n = std::min(block, count - first);
      if (non_temporal && first == 0) n = std::min(n, ToLineOf(targets_[0], block));
      if (mixed) {
        MixedBlock(first, n, non_temporal);
      } else {
        Block(first, n, non_temporal);
      }
      first += n;
    }
    return non_temporal || streamed;
  }

 private:
  int64_t BytesOf(bool partial) const { return partial ? partial_bytes_ : raw_bytes_; }

  // The first block ends where the target's cache lines begin, so that the rest streams whole ones.
  int64_t ToLineOf(const ReduceTarget& target, int64_t block) const {
    const int64_t bytes = BytesOf(target.partial);
    const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(target.data) & 63u);
    return past % bytes != 0 ? block : block - past / bytes;
  }

  void Pass(int64_t first, int64_t count, void* out, bool out_partial) {
    call_.sources = sources_.data();
    call_.num_sources = static_cast<int64_t>(sources_.size());
    call_.first = first;
    call_.count = count;
    call_.out = out;
    call_.out_partial = out_partial;
    kernel_(call_);
  }

  // Groups of sources, the sum so far as the first of each.
  void Passes(int64_t first, int64_t count, void* out, bool out_partial) {
    if (one_pass_) return Pass(first, count, out, out_partial);
    alignas(64) std::array<std::byte, 4 * kBlockBytes> sum;
    std::array<ReduceSource, kSourcesAtOnce> group;
    size_t next = 0;
    while (next < sources_.size()) {
      size_t n = 0;
      if (next > 0) group[n++] = {.data = sum.data(), .partial = true};
      while (n < group.size() && next < sources_.size()) {
        group[n] = sources_[next++];
        group[n].data = At(group[n].data, first * BytesOf(group[n].partial));
        ++n;
      }
      const bool last = next == sources_.size();
      call_.sources = group.data();
      call_.num_sources = static_cast<int64_t>(n);
      call_.first = 0;
      call_.count = count;
      call_.out = last ? out : sum.data();
      call_.out_partial = last ? out_partial : true;
      kernel_(call_);
    }
  }

  void Store(const std::byte* block, int64_t first, int64_t count, size_t target,
             bool non_temporal) {
    const int64_t bytes = BytesOf(targets_[target].partial);
    std::byte* to = At(targets_[target].data, first * bytes);
    if (non_temporal || targets_[target].streamed) {
      kernels_.stream(block, to, count * bytes);
    } else if (block != to) {
      std::memcpy(to, block, static_cast<size_t>(count * bytes));
    }
  }

  // All targets take the same form.
  void Block(int64_t first, int64_t count, bool non_temporal) {
    alignas(64) std::array<std::byte, 4 * kBlockBytes> local;
    const bool partial = targets_[0].partial;
    std::byte* block = non_temporal || targets_[0].streamed
                           ? local.data()
                           : At(targets_[0].data, first * BytesOf(partial));
    Passes(first, count, block, partial);
    for (size_t t = 0; t < targets_.size(); ++t) Store(block, first, count, t, non_temporal);
  }

  // Some take the partial sum, some what it becomes.
  void MixedBlock(int64_t first, int64_t count, bool non_temporal) {
    alignas(64) std::array<std::byte, 4 * kBlockBytes> sum;
    alignas(64) std::array<std::byte, 4 * kBlockBytes> finished;
    Passes(first, count, sum.data(), true);
    if (integer_avg_) {
      Passes(first, count, finished.data(), false);  // not from the sum, which wrapped around
    } else {
      const ReduceSource source = {.data = sum.data(), .partial = true};
      call_.sources = &source;
      call_.num_sources = 1;
      call_.first = 0;
      call_.count = count;
      call_.out = finished.data();
      call_.out_partial = false;
      kernel_(call_);
    }
    for (size_t t = 0; t < targets_.size(); ++t) {
      Store(targets_[t].partial ? sum.data() : finished.data(), first, count, t, non_temporal);
    }
  }

  const Kernels& kernels_;
  const KernelFn kernel_;
  const std::span<const ReduceSource> sources_;
  const std::span<const ReduceTarget> targets_;
  const int64_t raw_bytes_;
  const int64_t partial_bytes_;
  bool integer_avg_ = false;
  bool one_pass_ = true;
  bool two_forms_ = false;
  KernelCall call_;
};

}  // namespace

const Kernels& KernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return generic::kKernels;
    case Isa::kAvx2:
      return avx2::kKernels;
    case Isa::kAvx512:
      return avx512::kKernels;
  }
  return generic::kKernels;
}

void ReduceWith(const Kernels& kernels, const ReduceKernel& kernel,
                std::span<const ReduceSource> sources, std::span<const ReduceTarget> targets,
                int64_t count, bool non_temporal) {
  CRIA_CHECK(Reducible(kernel.dtype), Name(kernel.dtype), " does not reduce");
  CRIA_CHECK(!sources.empty() && !targets.empty() && kernel.group_size > 0);
  if (Reduction(kernels, kernel, sources, targets).Run(count, non_temporal)) _mm_sfence();
}

void CopyWith(const Kernels& kernels, const void* source, std::span<void* const> targets,
              int64_t bytes, bool non_temporal) {
  const int64_t block = targets.size() == 1 ? bytes : kCopyBlockBytes;
  for (int64_t first = 0; first < bytes; first += block) {
    const int64_t n = std::min(block, bytes - first);
    const std::byte* from = At(source, first);
    for (void* const target : targets) {
      std::byte* to = At(target, first);
      if (to == from) continue;
      if (non_temporal) {
        kernels.stream(from, to, n);
      } else {
        std::memcpy(to, from, static_cast<size_t>(n));
      }
    }
  }
  if (non_temporal) _mm_sfence();
}

}  // namespace reduce_internal

void RunReduce(const ReduceKernel& kernel, std::span<const ReduceSource> sources,
               std::span<const ReduceTarget> targets, int64_t count, bool non_temporal) {
  reduce_internal::ReduceWith(reduce_internal::KernelsFor(ActiveIsa()), kernel, sources, targets,
                              count, non_temporal);
}

void RunCopy(const void* source, std::span<void* const> targets, int64_t bytes, bool non_temporal) {
  reduce_internal::CopyWith(reduce_internal::KernelsFor(ActiveIsa()), source, targets, bytes,
                            non_temporal);
}

}  // namespace cria::comm
