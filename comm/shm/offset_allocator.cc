#include "comm/shm/offset_allocator.h"

#include <iterator>

#include "base/check.h"

namespace cria::comm {

OffsetAllocator::OffsetAllocator(int64_t begin, int64_t end) {
  CRIA_CHECK(0 <= begin && begin < end, "[", begin, ", ", end, ")");
  free_[begin] = end - begin;
}

std::optional<int64_t> OffsetAllocator::Allocate(int64_t bytes, int64_t alignment) {
  CRIA_CHECK(bytes > 0 && alignment > 0, bytes, " bytes at ", alignment);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [start, size] = *it;
    const int64_t offset = (start + alignment - 1) & ~(alignment - 1);
    const int64_t before = offset - start;
    if (before > size || size - before < bytes) continue;
    free_.erase(it);
    if (before > 0) free_[start] = before;
    if (size - before > bytes) free_[offset + bytes] = size - before - bytes;
    used_[offset] = bytes;
    return offset;
  }
  return std::nullopt;
}

void OffsetAllocator::Free(int64_t offset) {
  const auto range = used_.find(offset);
  CRIA_CHECK(range != used_.end(), "offset ", offset, " is not allocated");
  auto it = free_.emplace(offset, range->second).first;
  used_.erase(range);
  const auto next = std::next(it);
  if (next != free_.end() && it->first + it->second == next->first) {
    it->second += next->second;
    free_.erase(next);
  }
  if (it == free_.begin()) return;
  const auto previous = std::prev(it);
  if (previous->first + previous->second == it->first) {
    previous->second += it->second;
    free_.erase(it);
  }
}

int64_t OffsetAllocator::bytes_free() const {
  int64_t total = 0;
  for (const auto& [start, size] : free_) total += size;
  return total;
}

}  // namespace cria::comm
