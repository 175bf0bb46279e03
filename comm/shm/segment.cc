#include "comm/shm/segment.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "base/check.h"

namespace cria::comm {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

Status Exhausted(const char* what, int64_t bytes) {
  return ResourceExhaustedError("shared memory: ", what, " of ", bytes,
                                " bytes: ", std::strerror(errno));
}

}  // namespace

StatusOr<Mapping> Mapping::Map(int fd, int64_t bytes) {
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return Exhausted("a mapping", bytes);
  Mapping mapping;
  mapping.base_ = static_cast<std::byte*>(base);
  mapping.bytes_ = bytes;
  // Faults, TLB misses and the kernel's zeroing of large buffers cost more than the copy else.
  madvise(mapping.base_ + kHeapOffset, static_cast<size_t>(bytes - kHeapOffset), MADV_HUGEPAGE);
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
}

StatusOr<std::unique_ptr<Segment>> Segment::Create(int64_t bytes) {
  bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  if (bytes <= kHeapOffset) {
    return InvalidArgumentError("a segment of ", bytes, " bytes: it takes more than ", kHeapOffset);
  }
  const int fd = memfd_create("cria-comm", MFD_CLOEXEC);
  if (fd < 0) return Exhausted("a memory object", bytes);
  if (ftruncate(fd, bytes) != 0) {
    Status status = Exhausted("a memory object", bytes);
    close(fd);
    return status;
  }
  StatusOr<Mapping> mapping = Mapping::Map(fd, bytes);
  if (!mapping.ok()) {
    close(fd);
    return mapping.status();
  }
  return std::unique_ptr<Segment>(new Segment(fd, *std::move(mapping)));
}

Segment::Segment(int fd, Mapping mapping)
    : fd_(fd),
      mapping_(std::move(mapping)),
      pid_(getpid()),
      blocks_(kBlocksOffset, kHeapOffset),
      heap_(kHeapOffset, mapping_.bytes()),
      uses_(new Use[kGroupsMax]()) {
  new (mapping_.base()) SegmentHeader;
}

Segment::~Segment() { close(fd_); }

bool Segment::InChild() const { return getpid() != pid_; }

StatusOr<int64_t> Segment::Allocate(int64_t bytes) {
  CRIA_CHECK(bytes >= 0, bytes, " bytes");
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  const bool possible = bytes <= mapping_.bytes();  // then rounding does not overflow
  const int64_t rounded =
      possible ? (std::max<int64_t>(bytes, 1) + alignment - 1) / alignment * alignment : 0;
  MutexLock lock(&mu_);
  const std::optional<int64_t> offset =
      possible ? heap_.Allocate(rounded, alignment) : std::nullopt;
  if (!offset) {
    return ResourceExhaustedError("shared memory: ", bytes, " bytes do not fit into the ",
                                  heap_.bytes_free(), " that are free of this rank's segment");
  }
  return *offset;
}

void Segment::Free(int64_t offset) {
  if (InChild()) return;
  MutexLock lock(&mu_);
  const int64_t bytes = heap_.BytesOf(offset);
  if (bytes >= kHugePage) {
    madvise(mapping_.base() + offset, static_cast<size_t>(bytes), MADV_REMOVE);
  }
  heap_.Free(offset);
}

StatusOr<DirectoryEntry*> Segment::OpenGroup(uint64_t group_id, int num_local) {
  CRIA_CHECK(group_id != 0, "a group without id");
  MutexLock lock(&mu_);
  ReclaimClosedGroups();
  int index = 0;
  while (index < kGroupsMax && uses_[static_cast<size_t>(index)] != Use::kFree) ++index;
  const int64_t bytes = GroupBlock::Bytes(num_local);
  const std::optional<int64_t> offset =
      index < kGroupsMax ? blocks_.Allocate(bytes, kCacheLine) : std::nullopt;
  if (!offset) {
    return ResourceExhaustedError("shared memory: no place for another group beside ", index,
                                  " open ones");
  }
  std::byte* block = mapping_.base() + *offset;
  std::memset(block, 0, static_cast<size_t>(bytes));
  new (block) GroupBlock;
  DirectoryEntry* entry = directory() + index;
  uses_[static_cast<size_t>(index)] = Use::kOpen;
  entry->block.store(*offset, std::memory_order_relaxed);
  return entry;
}

void Segment::CloseGroup(DirectoryEntry* entry) {
  if (InChild()) return;
  MutexLock lock(&mu_);
  entry->group_id.store(0, std::memory_order_seq_cst);
  uses_[static_cast<size_t>(entry - directory())] = Use::kClosed;
}

void Segment::ReclaimClosedGroups() {
  for (int i = 0; i < kGroupsMax; ++i) {
    if (uses_[static_cast<size_t>(i)] != Use::kClosed) continue;
    // A peer counts itself in before it looks at group_id again (GroupSync::Attach).
    DirectoryEntry* entry = directory() + i;
    if (entry->users.load(std::memory_order_seq_cst) != 0) continue;
    blocks_.Free(entry->block.load(std::memory_order_relaxed));
    uses_[static_cast<size_t>(i)] = Use::kFree;
  }
}

}  // namespace cria::comm
