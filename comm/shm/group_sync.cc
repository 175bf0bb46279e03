#include "comm/shm/group_sync.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/str.h"

namespace cria::comm {
namespace {

// Looks before a waiter offers its core to others: some 5 us where every rank has one; where ranks
// take turns, each look is another rank's time.
constexpr int kSpins = 200;
constexpr int kCrowdedSpins = 1;
// Times that it lets others run before it sleeps.
constexpr int kYields = 400;
constexpr int kCrowdedYields = 2;
// While yielding, every so many looks everything is checked that can end the wait.
constexpr int kLooksPerCheck = 16;

int AllowedCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  return std::max(1, CPU_COUNT(&allowed));
}

// A linear hash: one changed field always changes it.
uint64_t DigestOf(Signature signature) {
  signature.input_bytes = 0;
  constexpr uint64_t kFactors[] = {0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
                                   0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB,
                                   0x8EBC6AF09C88C6E3};
  uint64_t words[sizeof(Signature) / 8];
  static_assert(sizeof(words) == sizeof(Signature) && std::size(words) == std::size(kFactors));
  std::memcpy(words, &signature, sizeof(words));
  uint64_t digest = 0;
  for (size_t i = 0; i < std::size(words); ++i) digest += words[i] * kFactors[i];
  return digest;
}

// True when `number` counts up to `target` or beyond; counters wrap around.
bool Reached(uint32_t number, uint32_t target) {
  return static_cast<int32_t>(number - target) >= 0;
}

}  // namespace

GroupSync::GroupSync(Segment* segment, Peers* peers, const GroupInfo& group, FailureState* failure)
    : segment_(segment),
      peers_(peers),
      group_(group),
      failure_(failure),
      local_index_(group.world_ranks.size(), -1),
      crowded_(static_cast<int>(group.local_ranks.size()) > AllowedCores()),
      met_(group.local_ranks.size()),
      entries_(group.local_ranks.size()),
      meet_tries_(group.local_ranks.size()),
      blocks_(new std::atomic<GroupBlock*>[group.local_ranks.size()]()) {
  for (size_t i = 0; i < group_.local_ranks.size(); ++i) {
    local_index_[static_cast<size_t>(group_.local_ranks[i])] = static_cast<int>(i);
  }
  self_ = LocalIndex(group_.rank);
  CRIA_CHECK(self_ >= 0, "rank ", group_.rank, " is not among the group's local ranks");
}

GroupSync::~GroupSync() {
  if (listener_ >= 0) failure_->RemoveListener(listener_);
  if (segment_->InChild()) return;
  for (int i = 0; i < num_local(); ++i) {
    DirectoryEntry* entry = entries_[static_cast<size_t>(i)];
    if (entry != nullptr) entry->users.fetch_sub(1, std::memory_order_seq_cst);
  }
  if (entry_ != nullptr) segment_->CloseGroup(entry_);
}

Status GroupSync::Open() {
  CRIA_ASSIGN_OR_RETURN(entry_, segment_->OpenGroup(group_.id, num_local()));
  own_ = reinterpret_cast<GroupBlock*>(segment_->mapping().base() +
                                       entry_->block.load(std::memory_order_relaxed));
  own_->by_counter = crowded_ ? 1 : 0;
  const auto self = static_cast<size_t>(self_);
  met_[self] = peers_->Find(peers_->world_rank());
  CRIA_CHECK(met_[self] != nullptr, "the domain was not started");
  blocks_[self].store(own_, std::memory_order_release);
  num_attached_ = 1;
  by_counter_ = self_ == 0 && own_->by_counter != 0;
  entry_->group_id.store(group_.id, std::memory_order_seq_cst);
  listener_ = failure_->AddListener([this](const Status& error) { Publish(error); });
  return OkStatus();
}

Status GroupSync::AttachMissing(const OperationContext& context) {
  for (int i = 0; i < num_local(); ++i) CRIA_RETURN_IF_ERROR(Attach(i, context));
  return OkStatus();
}

Status GroupSync::Attach(int local, const OperationContext& context) {
  const auto l = static_cast<size_t>(local);
  if (blocks_[l].load(std::memory_order_relaxed) != nullptr) return OkStatus();
  const WaitNote note = {.peer = local, .kind = WaitKind::kAttach};
  NoteWait(note);
  const int rank = group_.local_ranks[l];
  if (met_[l] == nullptr) {
    const StatusOr<Peer*> peer = peers_->Meet(group_.world_ranks[static_cast<size_t>(rank)],
                                              [&] { return CheckWait(context, note); });
    if (!peer.ok()) {
      if (failure_->failed()) return failure_->status();
      const bool lost = peer.status().code() == StatusCode::kUnavailable;
      return Fail(ErrorOf(context, lost ? CommErrorKind::kPeerLost : CommErrorKind::kInternal,
                          lost ? local : -1, Message(peer.status())));
    }
    met_[l] = *peer;
  }
  CRIA_RETURN_IF_ERROR(FindBlock(local, context));
  NoteWait({});
  return OkStatus();
}

// The peer may not have opened the group yet.
Status GroupSync::FindBlock(int local, const OperationContext& context) {
  const WaitNote note = {.peer = local, .kind = WaitKind::kAttach};
  for (int looks = 0; !TryFindBlock(local); ++looks) {
    CRIA_RETURN_IF_ERROR(CheckWait(context, note));
    if (looks < kYields) {
      sched_yield();
    } else {
      const timespec nap = {.tv_sec = 0, .tv_nsec = looks < 2 * kYields ? 100'000 : 1'000'000};
      nanosleep(&nap, nullptr);
    }
  }
  return OkStatus();
}

bool GroupSync::TryFindBlock(int local) {
  const auto l = static_cast<size_t>(local);
  if (blocks_[l].load(std::memory_order_relaxed) != nullptr) return true;
  DirectoryEntry* const directory = met_[l]->directory();
  for (DirectoryEntry* entry = directory; entry < directory + kGroupsMax; ++entry) {
    const uint64_t group_id = entry->group_id.load(std::memory_order_acquire);
    // Entries are used from the first on: behind one that never was there are none.
    if (group_id == 0 && entry->block.load(std::memory_order_relaxed) == 0) return false;
    if (group_id != group_.id) continue;
    entry->users.fetch_add(1, std::memory_order_seq_cst);
    std::byte* block = mapping(local).At(entry->block.load(std::memory_order_relaxed),
                                         GroupBlock::Bytes(num_local()));
    if (entry->group_id.load(std::memory_order_seq_cst) != group_.id || block == nullptr) {
      entry->users.fetch_sub(1, std::memory_order_seq_cst);
      continue;
    }
    entries_[l] = entry;
    blocks_[l].store(reinterpret_cast<GroupBlock*>(block), std::memory_order_release);
    ++num_attached_;
    if (local == 0) by_counter_ = this->block(0).by_counter != 0;
    return true;
  }
  return false;
}

void GroupSync::MeetOthers(double now_s) {
  // One that does not answer, because it is stopped, costs some 20 ms a try.
  constexpr int kTriesMax = 8;
  met_others_s_ = now_s;
  for (int i = 0; i < num_local(); ++i) {
    const auto l = static_cast<size_t>(i);
    if (met_[l] == nullptr && meet_tries_[l]++ < kTriesMax) {
      const int world = group_.world_ranks[static_cast<size_t>(group_.local_ranks[l])];
      met_[l] = peers_->Meet(world, [] { return UnavailableError("not now"); }).value_or(nullptr);
    }
    if (met_[l] != nullptr) TryFindBlock(i);
  }
}

Status GroupSync::Enter(const OperationContext& context) {
  RunHeader& mine = NextHeader();
  mine.digest = DigestOf(context.signature);
  mine.signature = context.signature;
  ++run_;
  Arrive(&mine.run, run_);
  CRIA_RETURN_IF_ERROR(AwaitAll(context, {.kind = WaitKind::kHeader, .number = run_}));
  return CompareHeaders(context);
}

Status GroupSync::CompareHeaders(const OperationContext& context) {
  const uint64_t digest = own_->headers[run_ & 1].digest;
  for (int i = 0; i < num_local(); ++i) {
    const RunHeader& theirs = header(i);
    if (theirs.digest == digest) [[likely]] {
      continue;
    }
    return Fail(MismatchError(group_, context.signature, group_.local_ranks[static_cast<size_t>(i)],
                              theirs.signature));
  }
  return OkStatus();
}

Status GroupSync::Barrier(const OperationContext& context) {
  ++barriers_;
  Arrive(&own_->barriers, barriers_);
  return AwaitAll(context, {.kind = WaitKind::kBarrier, .number = barriers_});
}

void GroupSync::Arrive(std::atomic<uint32_t>* word, uint32_t value) {
  if (!by_counter_) {
    word->exchange(value, std::memory_order_seq_cst);
    if (own_->sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(word);
    return;
  }
  // The word comes second: whose word is missing at a sync point may not have counted, and whose
  // word is there has.
  GroupBlock& first = block(0);
  ++sync_points_;
  const uint32_t arrived = 1 + first.arrivals.fetch_add(1, std::memory_order_acq_rel);
  if (arrived == sync_points_ * static_cast<uint32_t>(num_local())) {
    first.complete.store(sync_points_, std::memory_order_seq_cst);
    if (first.complete_sleepers.load(std::memory_order_seq_cst) != 0) {
      FutexWakeAll(&first.complete);
    }
  }
  word->store(value, std::memory_order_release);
}

Status GroupSync::AwaitAll(const OperationContext& context, WaitNote note) {
  int spins = by_counter_ ? kCrowdedSpins : kSpins;
  if (by_counter_) {
    while (!AllHere(note)) {
      if (--spins == 0) return AwaitSlowly(context, note);
      CpuRelax();
    }
    return OkStatus();
  }
  for (int i = 0; i < num_local(); ++i) {
    const std::atomic<uint32_t>& word =
        note.kind == WaitKind::kHeader ? block(i).headers[note.number & 1].run : block(i).barriers;
    while (!Reached(word.load(std::memory_order_acquire), note.number)) {
      if (--spins == 0) return AwaitSlowly(context, note);
      CpuRelax();
    }
  }
  return OkStatus();
}

Status GroupSync::AwaitSlowly(const OperationContext& context, WaitNote note) {
  const int yields = by_counter_ ? kCrowdedYields : kYields;
  for (int looks = 0; !AllHere(note); ++looks) {
    // Not at the first look: most waits end before the next one, and the check costs as much as
    // they.
    if (looks % kLooksPerCheck == kLooksPerCheck - 1 || looks >= yields) {
      note.peer = FirstMissing(note);
      NoteWait(note);
      const Status status = CheckWait(context, note);
      if (!status.ok()) return status;
    }
    if (looks < yields) {
      sched_yield();
    } else {
      Sleep(note);
    }
  }
  NoteWait({});
  return OkStatus();
}

void GroupSync::Sleep(const WaitNote& note) {
  if (by_counter_) {
    GroupBlock& first = block(0);
    first.complete_sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t complete = first.complete.load(std::memory_order_seq_cst);
    if (!Reached(complete, sync_points_)) FutexWait(&first.complete, complete, kSleepSeconds);
    first.complete_sleepers.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
  if (note.peer < 0) return;
  GroupBlock& theirs = block(note.peer);
  const std::atomic<uint32_t>& word =
      note.kind == WaitKind::kHeader ? theirs.headers[note.number & 1].run : theirs.barriers;
  theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t value = word.load(std::memory_order_seq_cst);
  if (!Reached(value, note.number)) FutexWait(&word, value, kSleepSeconds);
  theirs.sleepers.fetch_sub(1, std::memory_order_relaxed);
}

bool GroupSync::HasCome(int local, const WaitNote& note) const {
  const GroupBlock* theirs = blocks_[static_cast<size_t>(local)].load(std::memory_order_acquire);
  if (theirs == nullptr) return false;
  switch (note.kind) {
    case WaitKind::kHeader:
      return Reached(theirs->headers[0].run.load(std::memory_order_acquire), note.number) ||
             Reached(theirs->headers[1].run.load(std::memory_order_acquire), note.number);
    case WaitKind::kBarrier:
      return Reached(theirs->barriers.load(std::memory_order_acquire), note.number);
    case WaitKind::kAttach:
      return true;
    case WaitKind::kTransfer:
      break;
  }
  return false;
}

bool GroupSync::AllHere(const WaitNote& note) const {
  if (by_counter_) return Reached(block(0).complete.load(std::memory_order_acquire), sync_points_);
  return FirstMissing(note) < 0;
}

int GroupSync::FirstMissing(const WaitNote& note) const {
  for (int i = 0; i < num_local(); ++i) {
    if (i != self_ && !HasCome(i, note)) return i;
  }
  return -1;
}

Status GroupSync::CheckWait(const OperationContext& context, const WaitNote& note) {
  if (failure_->failed()) return failure_->status();
  CRIA_RETURN_IF_ERROR(PeersError(context));
  if (note.kind == WaitKind::kHeader || note.kind == WaitKind::kBarrier) {
    for (int i = 0; i < num_local(); ++i) {
      // It may have come before it died: so its death is looked at first.
      if (i == self_ || !Dead(i) || HasCome(i, note)) continue;
      return Fail(
          ErrorOf(context, CommErrorKind::kPeerLost, i,
                  StrCat("its process, pid ", met_[static_cast<size_t>(i)]->pid, ", is gone")));
    }
  } else if (note.kind == WaitKind::kAttach && met_[static_cast<size_t>(note.peer)] != nullptr &&
             Dead(note.peer)) {
    return Fail(ErrorOf(
        context, CommErrorKind::kPeerLost, note.peer,
        StrCat("its process, pid ", met_[static_cast<size_t>(note.peer)]->pid, ", is gone")));
  }
  const double now_s = RealClock()->MonotonicSeconds();
  if (wait_since_s_ == 0) wait_since_s_ = now_s;
  if (num_attached_ < num_local() &&
      now_s - std::max(wait_since_s_, met_others_s_) >= kSleepSeconds) {
    MeetOthers(now_s);
  }
  if (tracker_ != nullptr) TellTracker(note.peer, now_s);
  if (now_s < context.deadline_s) return OkStatus();
  return TimeoutError(context, note);
}

void GroupSync::TellTracker(int local, double now_s) {
  // Shorter waits are part of any operation.
  constexpr double kLongSeconds = 0.1;
  if (local < 0 || now_s - wait_since_s_ < kLongSeconds) return;
  told_tracker_ = true;
  tracker_->SetWaiting(group_.local_ranks[static_cast<size_t>(local)]);
}

Status GroupSync::PeersError(const OperationContext& context) {
  for (int i = 0; i < num_local(); ++i) {
    const GroupBlock* theirs = blocks_[static_cast<size_t>(i)].load(std::memory_order_relaxed);
    if (i == self_ || theirs == nullptr) continue;
    const ErrorRecord& record = theirs->error;
    if (record.set.load(std::memory_order_acquire) == 0) continue;
    const bool known =
        record.kind >= 0 && record.kind <= static_cast<int>(CommErrorKind::kInternal);
    std::string reason(record.reason, strnlen(record.reason, sizeof(record.reason)));
    if (record.kind == static_cast<int>(CommErrorKind::kMismatch) &&
        reason.rfind("told by ", 0) != 0) {  // whose "this rank" it is
      reason = StrCat("told by rank ", group_.local_ranks[static_cast<size_t>(i)], ": ", reason);
    }
    CommError error =
        ErrorOf(context, known ? static_cast<CommErrorKind>(record.kind) : CommErrorKind::kInternal,
                -1, std::move(reason));
    if (record.culprit >= 0 && record.culprit < group_.size()) error.culprit = record.culprit;
    error.culprit_world = record.culprit_world;
    error.culprit_bytes = record.culprit_bytes;
    return Fail(error);
  }
  return OkStatus();
}

void GroupSync::NoteWait(const WaitNote& note) {
  if (note.peer < 0) {
    wait_since_s_ = 0;
    if (std::exchange(told_tracker_, false)) tracker_->SetWaiting(-1);
  }
  own_->waits.store(note.Pack(), std::memory_order_release);
  const int world = note.peer < 0 ? -1
                                  : group_.world_ranks[static_cast<size_t>(
                                        group_.local_ranks[static_cast<size_t>(note.peer)])];
  segment_->header().waits_for_world.store(world + 1, std::memory_order_relaxed);
}

int GroupSync::Culprit(const WaitNote& note) const {
  int suspect = note.peer;
  for (int hops = 0; hops < num_local(); ++hops) {
    const GroupBlock* theirs =
        blocks_[static_cast<size_t>(suspect)].load(std::memory_order_acquire);
    int next = -1;
    WaitNote theirs_note;
    if (theirs != nullptr) {
      theirs_note = WaitNote::Unpack(theirs->waits.load(std::memory_order_acquire));
      next = theirs_note.peer;
    }
    if (next < 0 && met_[static_cast<size_t>(suspect)] != nullptr) {
      // It does not wait in this group: in another one, perhaps for one of us.
      const int world = met_[static_cast<size_t>(suspect)]->header().waits_for_world.load() - 1;
      for (int i = 0; i < num_local(); ++i) {
        const int rank = group_.local_ranks[static_cast<size_t>(i)];
        if (group_.world_ranks[static_cast<size_t>(rank)] == world) next = i;
      }
      theirs_note.kind = WaitKind::kTransfer;
    }
    // Nobody, this rank, or something that has come already: then it is the suspect that stands.
    if (next < 0 || next >= num_local() || next == suspect || next == self_) return suspect;
    if (HasCome(next, theirs_note)) return suspect;
    suspect = next;
  }
  return note.peer;  // a circle
}

Status GroupSync::TimeoutError(const OperationContext& context, const WaitNote& note) {
  if (tracker_ != nullptr && note.peer >= 0) {
    tracker_->SetWaiting(group_.local_ranks[static_cast<size_t>(note.peer)]);
    return Fail(tracker_->Timeout(context.timeout_s));
  }
  const int culprit = note.peer < 0 ? -1 : Culprit(note);
  std::string reason = StrCat("after ", context.timeout_s, " s, ");
  if (culprit < 0) {
    reason += "a rank has not gone on";
  } else {
    reason += StrCat("rank ", group_.local_ranks[static_cast<size_t>(culprit)]);
    switch (note.kind) {
      case WaitKind::kHeader:
        reason += " has not come to this operation";
        break;
      case WaitKind::kBarrier:
        reason += " has not finished its part of this operation";
        break;
      case WaitKind::kAttach:
        reason += " has not come to an operation of this group";
        break;
      case WaitKind::kTransfer:
        reason += " has not taken part in this transfer";
        break;
    }
  }
  return Fail(ErrorOf(context, CommErrorKind::kTimeout, culprit, std::move(reason)));
}

CommError GroupSync::ErrorOf(const OperationContext& context, CommErrorKind kind, int culprit_local,
                             std::string reason) const {
  const auto world = [this](int rank) { return group_.world_ranks[static_cast<size_t>(rank)]; };
  CommError error = {.kind = kind,
                     .group = group_.name,
                     .rank = group_.rank,
                     .world_rank = world(group_.rank),
                     .operation = Name(context.signature.kind),
                     .sequence = context.signature.sequence,
                     .bytes = context.signature.input_bytes,
                     .reason = std::move(reason)};
  if (culprit_local >= 0) {
    error.culprit = group_.local_ranks[static_cast<size_t>(culprit_local)];
    error.culprit_world = world(error.culprit);
  }
  return error;
}

Status GroupSync::Fail(const CommError& error) {
  failure_->Fail(ToStatus(error));
  return failure_->status();
}

// The listener of FailureState: called once, by any thread.
void GroupSync::Publish(const Status& error) {
  if (segment_->InChild()) return;
  ErrorRecord& record = own_->error;
  const std::optional<CommError> fields = GetCommError(error);
  record.kind = static_cast<int>(fields ? fields->kind : CommErrorKind::kInternal);
  record.culprit = fields ? fields->culprit : -1;
  record.culprit_world = fields ? fields->culprit_world : -1;
  record.culprit_bytes = fields ? fields->culprit_bytes : -1;
  const std::string reason = fields ? fields->reason : Message(error);
  std::memcpy(record.reason, reason.data(), std::min(reason.size(), sizeof(record.reason)));
  record.set.store(1, std::memory_order_release);
  WakeEverybody();
}

void GroupSync::WakeEverybody() {
  for (int i = 0; i < num_local(); ++i) {
    GroupBlock* theirs = blocks_[static_cast<size_t>(i)].load(std::memory_order_acquire);
    if (theirs == nullptr) continue;
    for (const std::atomic<uint32_t>* word :
         {&theirs->headers[0].run, &theirs->headers[1].run, &theirs->barriers, &theirs->complete,
          &theirs->doorbell}) {
      FutexWakeAll(word);
    }
  }
}

void GroupSync::RingDoorbell(int local) {
  GroupBlock& theirs = block(local);
  theirs.doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (theirs.doorbell_sleeps.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&theirs.doorbell);
}

}  // namespace cria::comm
