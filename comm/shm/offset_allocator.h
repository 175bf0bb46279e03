// Hands out ranges of [0, bytes): first fit, neighbours joined when they are freed.
// Thread-compatible. Cost: logarithmic in the number of ranges to free, linear to allocate.

#ifndef CRIA_COMM_SHM_OFFSET_ALLOCATOR_H_
#define CRIA_COMM_SHM_OFFSET_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>

namespace cria::comm {

class OffsetAllocator {
 public:
  // Ranges lie in [begin, end).
  OffsetAllocator(int64_t begin, int64_t end);

  // Where `bytes` > 0 at a multiple of `alignment` (a power of two) lie; nothing when none fit.
  std::optional<int64_t> Allocate(int64_t bytes, int64_t alignment);
  // `offset` came from Allocate.
  void Free(int64_t offset);
  int64_t bytes_free() const;
  // The size of an allocated range, as it was asked for.
  int64_t BytesOf(int64_t offset) const { return used_.at(offset); }

 private:
  std::map<int64_t, int64_t> free_;  // start to size
  std::map<int64_t, int64_t> used_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_OFFSET_ALLOCATOR_H_
