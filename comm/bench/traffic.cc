#include "comm/bench/traffic.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "comm/reduce/reduce.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace cria::comm {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kLargePage = int64_t{2} << 20;
constexpr int64_t kLineFloats = kLine / int64_t{sizeof(float)};

// In large pages where the system has them: the bound is not one of address translation.
float* Allocate(int64_t bytes) {
  const int64_t alignment = bytes < kLargePage ? kLine : kLargePage;
  const auto size =
      static_cast<size_t>((std::max(bytes, kLine) + alignment - 1) / alignment * alignment);
  void* const memory = std::aligned_alloc(static_cast<size_t>(alignment), size);
  if (memory != nullptr && alignment == kLargePage) madvise(memory, size, MADV_HUGEPAGE);
  // Touched, so that the pages are there.
  if (memory != nullptr) std::memset(memory, 1, size);
  return static_cast<float*>(memory);
}

// One line of the target: the sum of `streams` lines of the source, `stride` floats apart.
void SumLine(const float* source, int64_t streams, int64_t stride, float* target,
             bool non_temporal) {
#ifdef __SSE2__
  __m128 sum[4];
  for (int i = 0; i < 4; ++i) sum[i] = _mm_load_ps(source + 4 * i);
  for (int64_t s = 1; s < streams; ++s) {
    for (int i = 0; i < 4; ++i) {
      sum[i] = _mm_add_ps(sum[i], _mm_load_ps(source + s * stride + 4 * i));
    }
  }
  for (int i = 0; i < 4; ++i) {
    if (non_temporal) {
      _mm_stream_ps(target + 4 * i, sum[i]);
    } else {
      _mm_store_ps(target + 4 * i, sum[i]);
    }
  }
#else
  (void)non_temporal;
  for (int64_t i = 0; i < kLineFloats; ++i) {
    float sum = source[i];
    for (int64_t s = 1; s < streams; ++s) sum += source[s * stride + i];
    target[i] = sum;
  }
#endif
}

}  // namespace

void TrafficKernel::Free::operator()(void* p) const { std::free(p); }

Traffic TrafficOf(const CollectiveShape& shape, int size) {
  // S: the larger side of one rank, the `size` of nccl-tests' rows.
  const int64_t part = shape.count * ByteSize(shape.dtype);
  const int64_t all = part * size;
  switch (shape.kind) {
    case OpKind::kAllReduce:
    case OpKind::kSend:
      return {part, part};
    case OpKind::kReduce:
      return {part, part / size};
    case OpKind::kBroadcast:
      return {part, part};
    case OpKind::kAllGather:
    case OpKind::kAllGatherV:
      return {all, shape.in_place ? all - part : all};
    case OpKind::kReduceScatter:
    case OpKind::kReduceScatterV:
      return {all, part};
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV:
      return {all, all};
    case OpKind::kGather:
    case OpKind::kScatter:
      return {part, part};
    default:
      return {0, 0};
  }
}

TrafficKernel::TrafficKernel(const Traffic& traffic)
    : traffic_(traffic), source_(Allocate(traffic.read)), target_(Allocate(traffic.written)) {}

void TrafficKernel::Run(TrafficStores stores) {
  if (source_ == nullptr || target_ == nullptr) return;
  if (stores == TrafficStores::kWide && traffic_.read == traffic_.written) {
    void* const targets[] = {target_.get()};
    RunCopy(source_.get(), targets, traffic_.read, /*non_temporal=*/true);
    return;
  }
  const bool non_temporal = stores != TrafficStores::kPlain;
  const int64_t read_lines = traffic_.read / kLine;
  const int64_t written_lines = traffic_.written / kLine;
  if (read_lines == 0) {
    std::memcpy(target_.get(), source_.get(),
                static_cast<size_t>(std::min(traffic_.read, traffic_.written)));
    return;
  }
  // `streams` lines are read for each that is written; what is left over is read alone.
  const int64_t lines = std::max<int64_t>(written_lines, 1);
  const int64_t streams = std::max<int64_t>(read_lines / lines, 1);
  const int64_t stride = read_lines / streams * kLineFloats;
  const int64_t count = std::min(lines, read_lines / streams);
  for (int64_t i = 0; i < count; ++i) {
    SumLine(source_.get() + i * kLineFloats, streams, stride, target_.get() + i * kLineFloats,
            non_temporal);
  }
#ifdef __SSE2__
  if (non_temporal) _mm_sfence();
#endif
}

}  // namespace cria::comm
