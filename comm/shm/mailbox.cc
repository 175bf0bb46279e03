#include "comm/shm/mailbox.h"

#include <sched.h>

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/str.h"
#include "comm/reduce/reduce.h"

namespace cria::comm {
namespace {

constexpr int64_t kRingBytes = int64_t{512} << 10;  // both copies find it in the second-level cache
constexpr int64_t kRingChunk = int64_t{64} << 10;
// Between two looks at everything else, so much of one message is copied.
constexpr int64_t kCopyChunk = int64_t{1} << 20;
constexpr int64_t kNonTemporalBytes = int64_t{4} << 20;

constexpr int kSpins = 200;
constexpr int kCrowdedSpins = 20;
constexpr int kYields = 200;
constexpr int kCrowdedYields = 20;
constexpr int kLooksPerCheck = 16;

void Copy(const std::byte* from, std::byte* to, int64_t bytes, bool non_temporal) {
  void* const target = to;
  RunCopy(from, {&target, 1}, bytes, non_temporal);
}

}  // namespace

Mailbox::Mailbox(Segment* segment, GroupSync* sync)
    : segment_(segment), sync_(sync), rings_(static_cast<size_t>(sync->num_local()), 0) {}

Mailbox::~Mailbox() {
  for (const int64_t ring : rings_) {
    if (ring != 0) segment_->Free(ring);
  }
}

Status Mailbox::Enlist(const OperationContext& context, std::span<const Transfer> transfers,
                       std::vector<Motion>* motions) {
  motions->clear();
  latest_.assign(static_cast<size_t>(sync_->num_local()), -1);
  for (const Transfer& transfer : transfers) {
    const int local = sync_->LocalIndex(transfer.peer);
    CRIA_CHECK(local >= 0 && local != sync_->self(), "a transfer with rank ", transfer.peer);
    CRIA_RETURN_IF_ERROR(sync_->Attach(local, context));
    int& latest = latest_[static_cast<size_t>(local)];
    motions->push_back({.transfer = &transfer, .local = local, .after = latest});
    latest = static_cast<int>(motions->size()) - 1;
  }
  return OkStatus();
}

Status Mailbox::Exchange(const OperationContext& context, std::span<const Transfer> sends,
                         std::span<const Transfer> recvs) {
  CRIA_RETURN_IF_ERROR(Enlist(context, sends, &sends_));
  CRIA_RETURN_IF_ERROR(Enlist(context, recvs, &recvs_));
  const bool crowded = sync_->crowded();
  const int spins = crowded ? kCrowdedSpins : kSpins;
  const int yields = spins + (crowded ? kCrowdedYields : kYields);
  int idle = 0;
  Status status;
  while (true) {
    bool moved = false;
    CRIA_RETURN_IF_ERROR(Advance(context, &moved));
    if (FirstPending() == nullptr) break;
    idle = moved ? 0 : idle + 1;
    if (idle < spins) {
      CpuRelax();
      continue;
    }
    if (idle % kLooksPerCheck == 0 || idle >= yields) CRIA_RETURN_IF_ERROR(CheckPending(context));
    if (idle < yields) {
      sched_yield();
      continue;
    }
    sync_->SleepForDoorbell([&] {
      status = Advance(context, &moved);
      return moved || !status.ok();
    });
    CRIA_RETURN_IF_ERROR(status);
    if (moved) idle = 0;
  }
  sync_->NoteWait({});
  return OkStatus();
}

const Mailbox::Motion* Mailbox::FirstPending() const {
  for (const std::vector<Motion>* motions : {&sends_, &recvs_}) {
    for (const Motion& motion : *motions) {
      if (!motion.done) return &motion;
    }
  }
  return nullptr;
}

Status Mailbox::Advance(const OperationContext& context, bool* moved) {
  const auto may_start = [](const std::vector<Motion>& motions, const Motion& motion) {
    return motion.after < 0 || motions[static_cast<size_t>(motion.after)].done;
  };
  for (Motion& motion : sends_) {
    if (motion.done || !may_start(sends_, motion)) continue;
    CRIA_RETURN_IF_ERROR(AdvanceSend(context, &motion, moved));
  }
  for (Motion& motion : recvs_) {
    if (motion.done || !may_start(recvs_, motion)) continue;
    CRIA_RETURN_IF_ERROR(AdvanceRecv(context, &motion, moved));
  }
  return OkStatus();
}

Status Mailbox::CheckPending(const OperationContext& context) {
  const Motion* first = FirstPending();
  const WaitNote note = {
      .peer = first->local, .kind = WaitKind::kTransfer, .number = first->number()};
  sync_->NoteWait(note);
  CRIA_RETURN_IF_ERROR(sync_->CheckWait(context, note));
  // What a peer did before it died still counts: its death is seen first, then its boxes again.
  std::vector<int> dead;
  for (const std::vector<Motion>* motions : {&sends_, &recvs_}) {
    for (const Motion& motion : *motions) {
      if (!motion.done && sync_->Dead(motion.local)) dead.push_back(motion.local);
    }
  }
  if (dead.empty()) return OkStatus();
  bool moved = true;
  while (moved) {
    moved = false;
    CRIA_RETURN_IF_ERROR(Advance(context, &moved));
  }
  for (const std::vector<Motion>* motions : {&sends_, &recvs_}) {
    for (const Motion& motion : *motions) {
      if (motion.done || std::find(dead.begin(), dead.end(), motion.local) == dead.end()) continue;
      return sync_->Fail(
          sync_->ErrorOf(context, CommErrorKind::kPeerLost, motion.local, "its process is gone"));
    }
  }
  return OkStatus();
}

Status Mailbox::AdvanceSend(const OperationContext& context, Motion* motion, bool* moved) {
  const Transfer& transfer = *motion->transfer;
  const auto local = static_cast<size_t>(motion->local);
  SendBox& box = sync_->own_block().send_boxes()[local];
  const RecvBox* their_boxes =
      sync_->block(motion->local).recv_boxes(sync_->num_local()) + 2 * sync_->self();
  const RecvBox& theirs = their_boxes[motion->number() & 1];
  if (!motion->posted) {
    box.bytes = transfer.bytes;
    box.place = segment_->OffsetOf(transfer.data);
    if (box.place == kPrivate && transfer.bytes > 0 && rings_[local] == 0) {
      CRIA_ASSIGN_OR_RETURN(rings_[local], segment_->Allocate(kRingBytes));
    }
    box.ring = rings_[local];
    box.produced.store(0, std::memory_order_relaxed);
    box.posted.store(motion->number(), std::memory_order_release);
    sync_->RingDoorbell(motion->local);
    motion->posted = true;
    *moved = true;
    context.Step("message");
  }
  if (theirs.posted.load(std::memory_order_acquire) != motion->number()) return OkStatus();
  if (theirs.bytes != transfer.bytes) return Mismatch(context, *motion, true, theirs.bytes);
  if (box.place == kPrivate && motion->moved < transfer.bytes) {
    CRIA_RETURN_IF_ERROR(theirs.place != kPrivate ? Push(context, theirs, motion, moved)
                                                  : FillRing(theirs, motion, moved));
  }
  if (their_boxes[0].done.load(std::memory_order_acquire) == motion->number()) {
    motion->done = true;
    *moved = true;
  }
  return OkStatus();
}

Status Mailbox::Push(const OperationContext& context, const RecvBox& theirs, Motion* motion,
                     bool* moved) {
  const Transfer& transfer = *motion->transfer;
  std::byte* to = sync_->mapping(motion->local).At(theirs.place, transfer.bytes);
  if (to == nullptr) return Corrupt(context, *motion);
  const int64_t bytes = std::min(kCopyChunk, transfer.bytes - motion->moved);
  Copy(transfer.data + motion->moved, to + motion->moved, bytes,
       transfer.bytes >= kNonTemporalBytes);
  motion->moved += bytes;
  *moved = true;
  if (motion->moved < transfer.bytes) return OkStatus();
  sync_->own_block().send_boxes()[motion->local].produced.store(transfer.bytes,
                                                                std::memory_order_release);
  sync_->RingDoorbell(motion->local);
  return OkStatus();
}

Status Mailbox::FillRing(const RecvBox& theirs, Motion* motion, bool* moved) {
  const Transfer& transfer = *motion->transfer;
  std::byte* ring = segment_->mapping().base() + rings_[static_cast<size_t>(motion->local)];
  const int64_t consumed = theirs.consumed.load(std::memory_order_acquire);
  // Chunks never straddle the ring's end: it is a multiple of them.
  const int64_t bytes = std::min(kRingChunk, transfer.bytes - motion->moved);
  if (motion->moved + bytes - consumed > kRingBytes) return OkStatus();
  Copy(transfer.data + motion->moved, ring + motion->moved % kRingBytes, bytes, false);
  motion->moved += bytes;
  *moved = true;
  sync_->own_block().send_boxes()[motion->local].produced.store(motion->moved,
                                                                std::memory_order_release);
  sync_->RingDoorbell(motion->local);
  return OkStatus();
}

Status Mailbox::AdvanceRecv(const OperationContext& context, Motion* motion, bool* moved) {
  const Transfer& transfer = *motion->transfer;
  RecvBox* boxes = sync_->own_block().recv_boxes(sync_->num_local()) + 2 * motion->local;
  RecvBox& box = boxes[motion->number() & 1];
  const SendBox& theirs = sync_->block(motion->local).send_boxes()[sync_->self()];
  if (!motion->posted) {
    box.bytes = transfer.bytes;
    box.place = segment_->OffsetOf(transfer.data);
    box.consumed.store(0, std::memory_order_relaxed);
    box.posted.store(motion->number(), std::memory_order_release);
    sync_->RingDoorbell(motion->local);
    motion->posted = true;
    *moved = true;
    context.Step("message");
  }
  if (theirs.posted.load(std::memory_order_acquire) != motion->number()) return OkStatus();
  if (theirs.bytes != transfer.bytes) return Mismatch(context, *motion, false, theirs.bytes);
  if (motion->moved < transfer.bytes) {
    if (theirs.place != kPrivate) {
      CRIA_RETURN_IF_ERROR(Pull(context, theirs, motion, moved));
    } else if (box.place == kPrivate) {
      CRIA_RETURN_IF_ERROR(DrainRing(context, theirs, motion, moved));
    } else if (theirs.produced.load(std::memory_order_acquire) == transfer.bytes) {
      motion->moved = transfer.bytes;
    }
  }
  if (motion->moved < transfer.bytes) return OkStatus();
  boxes[0].done.store(motion->number(), std::memory_order_release);
  sync_->RingDoorbell(motion->local);
  motion->done = true;
  *moved = true;
  return OkStatus();
}

Status Mailbox::Pull(const OperationContext& context, const SendBox& theirs, Motion* motion,
                     bool* moved) {
  const Transfer& transfer = *motion->transfer;
  const std::byte* from = sync_->mapping(motion->local).At(theirs.place, transfer.bytes);
  if (from == nullptr) return Corrupt(context, *motion);
  const int64_t bytes = std::min(kCopyChunk, transfer.bytes - motion->moved);
  Copy(from + motion->moved, transfer.data + motion->moved, bytes,
       transfer.bytes >= kNonTemporalBytes);
  motion->moved += bytes;
  *moved = true;
  return OkStatus();
}

Status Mailbox::DrainRing(const OperationContext& context, const SendBox& theirs, Motion* motion,
                          bool* moved) {
  const Transfer& transfer = *motion->transfer;
  const std::byte* ring = sync_->mapping(motion->local).At(theirs.ring, kRingBytes);
  const int64_t produced = theirs.produced.load(std::memory_order_acquire);
  if (ring == nullptr || produced < motion->moved || produced > transfer.bytes) {
    return Corrupt(context, *motion);
  }
  if (produced == motion->moved) return OkStatus();
  const int64_t bytes = std::min(kRingChunk, produced - motion->moved);
  Copy(ring + motion->moved % kRingBytes, transfer.data + motion->moved, bytes, false);
  motion->moved += bytes;
  *moved = true;
  sync_->own_block()
      .recv_boxes(sync_->num_local())[2 * motion->local + static_cast<int>(motion->number() & 1)]
      .consumed.store(motion->moved, std::memory_order_release);
  sync_->RingDoorbell(motion->local);
  return OkStatus();
}

Status Mailbox::Mismatch(const OperationContext& context, const Motion& motion, bool sending,
                         int64_t theirs) const {
  const int64_t bytes = motion.transfer->bytes;
  const int peer = motion.transfer->peer;
  CommError error = sync_->ErrorOf(
      context, CommErrorKind::kMismatch, motion.local,
      sending ? StrCat("this rank sends ", bytes, " bytes, rank ", peer, " receives ", theirs)
              : StrCat("this rank receives ", bytes, " bytes, rank ", peer, " sends ", theirs));
  error.bytes = bytes;
  error.culprit_bytes = theirs;
  return sync_->Fail(error);
}

Status Mailbox::Corrupt(const OperationContext& context, const Motion& motion) const {
  return sync_->Fail(sync_->ErrorOf(
      context, CommErrorKind::kInternal, motion.local,
      StrCat("rank ", motion.transfer->peer, " published a place outside its shared memory")));
}

}  // namespace cria::comm
