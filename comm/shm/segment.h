// A process's own segment: the memfd, its mapping, and who has which part of it.
//
//   CRIA_ASSIGN_OR_RETURN(auto segment, Segment::Create(int64_t{64} << 30));
//   CRIA_ASSIGN_OR_RETURN(const int64_t offset, segment->Allocate(bytes));
//
// Thread-safe. In a forked child everything is inert: it frees nothing of its parent's.

#ifndef CRIA_COMM_SHM_SEGMENT_H_
#define CRIA_COMM_SHM_SEGMENT_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/shm/layout.h"
#include "comm/shm/offset_allocator.h"

namespace cria::comm {

// Memory mapped from a descriptor, unmapped at the end.
class Mapping {
 public:
  Mapping() = default;
  static StatusOr<Mapping> Map(int fd, int64_t bytes);
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  std::byte* base() const { return base_; }
  int64_t bytes() const { return bytes_; }
  // The `bytes` at `offset`, or nullptr when they don't all lie inside.
  std::byte* At(int64_t offset, int64_t bytes) const {
    return offset >= 0 && bytes >= 0 && offset <= bytes_ && bytes <= bytes_ - offset
               ? base_ + offset
               : nullptr;
  }

 private:
  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

class Segment {
 public:
  // ResourceExhausted when the kernel has no memory object, descriptor or address space.
  static StatusOr<std::unique_ptr<Segment>> Create(int64_t bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int fd() const { return fd_; }
  const Mapping& mapping() const { return mapping_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(mapping_.base()); }
  DirectoryEntry* directory() const {
    return reinterpret_cast<DirectoryEntry*>(mapping_.base() + kDirectoryOffset);
  }
  // The place of a pointer in this segment's heap, or kPrivate.
  int64_t OffsetOf(const std::byte* pointer) const {
    const auto distance =
        reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(mapping_.base());
    return pointer != nullptr && distance < static_cast<uintptr_t>(mapping_.bytes())
               ? static_cast<int64_t>(distance)
               : kPrivate;
  }
  // True in a process that inherited the segment by fork.
  bool InChild() const;

  // Memory of the heap, aligned to a cache line, from 2 MiB on to a huge page.
  StatusOr<int64_t> Allocate(int64_t bytes) CRIA_EXCLUDES(mu_);
  // Large ranges go back to the kernel.
  void Free(int64_t offset) CRIA_EXCLUDES(mu_);

  // A group's block, zeroed, with its place in the directory.
  StatusOr<DirectoryEntry*> OpenGroup(uint64_t group_id, int num_local) CRIA_EXCLUDES(mu_);
  // The block is reused once no peer uses it.
  void CloseGroup(DirectoryEntry* entry) CRIA_EXCLUDES(mu_);

 private:
  Segment(int fd, Mapping mapping);
  void ReclaimClosedGroups() CRIA_REQUIRES(mu_);

  // Constant after construction.
  const int fd_;
  const Mapping mapping_;
  const pid_t pid_;

  Mutex mu_;
  OffsetAllocator blocks_ CRIA_GUARDED_BY(mu_);
  OffsetAllocator heap_ CRIA_GUARDED_BY(mu_);
  // By entry of the directory: what this process does with it.
  enum class Use : uint8_t { kFree, kOpen, kClosed };
  std::unique_ptr<Use[]> uses_ CRIA_GUARDED_BY(mu_);
};

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_SEGMENT_H_
