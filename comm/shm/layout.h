// What lies where in a segment, as all processes of a host see it.
//
//   0          SegmentHeader
//   4 KiB      the directory: which groups this rank has opened, and where their blocks are
//   1 MiB      blocks of groups (GroupBlock and its mailboxes), never user memory
//   1 GiB      the heap: buffers, staging
//
// Unless a comment says otherwise, a field is written by the segment's owner alone. Everything
// starts as zero bytes, which every type here takes for "nothing yet". What a peer wrote is checked
// before it is used as a size or a place. Thread-safe: atomics, or guarded by one as noted.

#ifndef CRIA_COMM_SHM_LAYOUT_H_
#define CRIA_COMM_SHM_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/engine/transport.h"

namespace cria::comm {

inline constexpr uint64_t kSegmentMagic = 0x43524941'53484D31;  // "CRIASHM1"
inline constexpr int64_t kDirectoryOffset = 4096;
inline constexpr int64_t kBlocksOffset = int64_t{1} << 20;
inline constexpr int64_t kHeapOffset = int64_t{1} << 30;
inline constexpr int kGroupsMax = 8192;
inline constexpr int kCacheLine = 64;

struct SegmentHeader {
  uint64_t magic = kSegmentMagic;
  // The world rank that this process's latest wait is for, plus one; 0: it does not wait. For
  // finding out who is to blame, across groups.
  std::atomic<int32_t> waits_for_world{0};
};

struct alignas(kCacheLine) DirectoryEntry {
  std::atomic<uint64_t> group_id{0};  // 0: free
  std::atomic<int64_t> block{0};      // offset of the GroupBlock; valid while group_id stands
  std::atomic<uint32_t> users{0};     // peers that use the block; counted by them
};
static_assert(kDirectoryOffset + kGroupsMax * sizeof(DirectoryEntry) <= kBlocksOffset);

// Payloads up to kLinePayload travel in the header's first line, up to kTinyBytes behind it.
inline constexpr int64_t kLinePayload = 48;
inline constexpr int64_t kTinyBytes = 4096;

// What a rank says at the start of a Run. There are two, used in turns: a rank writes number n + 2
// only after every peer has written n + 1, and so has read n.
struct alignas(kCacheLine) RunHeader {
  // One line: the number of the Run, stored last; a futex word.
  std::atomic<uint32_t> run{0};
  uint32_t reserved = 0;
  uint64_t digest = 0;  // of the Signature
  std::byte line_payload[kLinePayload];

  // Read when digests differ.
  alignas(kCacheLine) Signature signature;

  // Where the slots of the plan start, as offsets in this segment that may lie before a slot's
  // used part; kPrivate: not in the segment.
  alignas(kCacheLine) int64_t places[3];
  // Where this rank's windows start (windows.h), through which peers reach its private slots; 0
  // when it has none.
  int64_t windows;
  int64_t longest_task;  // elements, of those that this rank takes part in
  alignas(kCacheLine) std::byte payload[kTinyBytes];
};
inline constexpr int64_t kPrivate = INT64_MIN;
static_assert(offsetof(RunHeader, signature) == kCacheLine);

// The first error that a rank knew of, for its peers.
struct ErrorRecord {
  std::atomic<uint32_t> set{0};  // stored last
  int32_t kind = 0;
  int32_t culprit = -1;
  int32_t culprit_world = -1;
  int64_t culprit_bytes = -1;
  char reason[472] = {};
};

// What a rank waits for at the moment, packed: peer's local index + 1, kind, number.
enum class WaitKind : uint8_t { kHeader, kBarrier, kTransfer, kAttach };
struct WaitNote {
  int peer = -1;  // local index; -1: does not wait
  WaitKind kind = WaitKind::kHeader;
  uint32_t number = 0;

  uint64_t Pack() const {
    return uint64_t{static_cast<uint32_t>(peer + 1)} << 40 |
           uint64_t{static_cast<uint8_t>(kind)} << 32 | number;
  }
  static WaitNote Unpack(uint64_t bits) {
    return {.peer = static_cast<int>(bits >> 40) - 1,
            .kind = static_cast<WaitKind>(bits >> 32 & 3u),
            .number = static_cast<uint32_t>(bits)};
  }
};

// One direction of a pair, at the sender's: the message under way.
struct alignas(kCacheLine) SendBox {
  std::atomic<uint32_t> posted{0};  // the message's number; guards the next three
  int64_t bytes;
  int64_t place;                     // offset in the sender's segment, or kPrivate
  int64_t ring;                      // offset of the staging ring when private
  std::atomic<int64_t> produced{0};  // bytes that lie in the ring or in the receiver's buffer
};
// At the receiver's, two used in turns by the message's number.
struct alignas(kCacheLine) RecvBox {
  std::atomic<uint32_t> posted{0};  // guards the next two
  int64_t bytes;
  int64_t place;
  std::atomic<int64_t> consumed{0};
  std::atomic<uint32_t> done{0};  // of the first of the two: messages received, all of them
};

struct GroupBlock {
  RunHeader headers[2];
  // Barriers that this rank has come to; a futex word.
  alignas(kCacheLine) std::atomic<uint32_t> barriers{0};
  // Written by peers: how many sleep on `barriers` or a header's `run`.
  alignas(kCacheLine) std::atomic<uint32_t> sleepers{0};
  alignas(kCacheLine) std::atomic<uint64_t> waits{0};  // WaitNote
  uint32_t by_counter = 0;  // of the first local rank: how the group waits (GroupSync)
  // Of the first local rank, written by all: arrivals at the group's sync points, and how many of
  // those are complete (a futex word).
  alignas(kCacheLine) std::atomic<uint32_t> arrivals{0};
  alignas(kCacheLine) std::atomic<uint32_t> complete{0};
  std::atomic<uint32_t> complete_sleepers{0};
  // Rung by peers when a mailbox of this rank changed while it sleeps.
  alignas(kCacheLine) std::atomic<uint32_t> doorbell{0};
  std::atomic<uint32_t> doorbell_sleeps{0};
  alignas(kCacheLine) ErrorRecord error;

  // Behind the block, for each local rank: SendBox[n], RecvBox[2 n].
  SendBox* send_boxes() { return reinterpret_cast<SendBox*>(this + 1); }
  RecvBox* recv_boxes(int num_local) {
    return reinterpret_cast<RecvBox*>(send_boxes() + num_local);
  }
  static int64_t Bytes(int num_local) {
    return static_cast<int64_t>(sizeof(GroupBlock)) +
           num_local * static_cast<int64_t>(sizeof(SendBox) + 2 * sizeof(RecvBox));
  }
};
static_assert(sizeof(GroupBlock) % kCacheLine == 0);

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_LAYOUT_H_
