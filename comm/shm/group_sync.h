// How the local ranks of one group meet: headers at the start of a Run, barriers inside it, one
// error for all.
//
// Two ways to wait, chosen by the first local rank for all:
//   by flags    every rank stores its own word, and looks at each peer's: one flight of a cache
//               line; for groups that have a core a rank;
//   by counter  every rank adds one to a counter of the first local rank, the last one completes
//               the sync point and wakes all sleepers at once: for more ranks than cores, which
//               take turns anyway.
// A waiter spins, then yields, then sleeps in slices of at most kSleepSeconds. Between two looks it
// checks its communicator's failure, its peers' error records, its peers' deaths and the deadline.
// A wait that lasts longer meets the group's other ranks too: a rank that this one exchanges
// nothing with may be the one that fails.
//
// Blame: a rank that waits notes for whom (WaitNote). At the deadline the notes are followed from
// the rank that is missing here to one that waits for nobody, or for something that has come
// already (it was stopped): that one is named.
//
// Ranks are local indices here: positions in GroupInfo::local_ranks. Thread-compatible, except the
// failure listener inside, which may run on any thread.

#ifndef CRIA_COMM_SHM_GROUP_SYNC_H_
#define CRIA_COMM_SHM_GROUP_SYNC_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/api/error.h"
#include "comm/engine/failure.h"
#include "comm/engine/transport.h"
#include "comm/shm/futex.h"
#include "comm/shm/layout.h"
#include "comm/shm/peers.h"
#include "comm/shm/segment.h"

namespace cria::comm {

// The longest that anybody sleeps without looking around.
inline constexpr double kSleepSeconds = 0.02;

class GroupSync {
 public:
  // All of them outlive this.
  GroupSync(Segment* segment, Peers* peers, const GroupInfo& group, FailureState* failure);
  ~GroupSync();
  GroupSync(const GroupSync&) = delete;
  GroupSync& operator=(const GroupSync&) = delete;

  // Makes this rank's block and publishes it.
  Status Open();

  const GroupInfo& group() const { return group_; }
  int self() const { return self_; }
  int num_local() const { return static_cast<int>(group_.local_ranks.size()); }
  // The local index of a rank of the group; -1 for one of another host.
  int LocalIndex(int rank) const { return local_index_[static_cast<size_t>(rank)]; }
  // Ranks take turns on the cores: whoever waits should let others run.
  bool crowded() const { return crowded_; }
  // The same as the first local rank sees it, which all go by. Known after AttachAll.
  bool taking_turns() const { return by_counter_; }

  // The communicator's error; OK while it has none.
  Status Broken() const { return failure_->failed() ? failure_->status() : OkStatus(); }

  // Meets the peers that were not met yet; once it returned OK, it costs a comparison.
  Status AttachAll(const OperationContext& context) {
    return num_attached_ == num_local() ? OkStatus() : AttachMissing(context);
  }
  Status Attach(int local, const OperationContext& context);
  GroupBlock& block(int local) const {
    return *blocks_[static_cast<size_t>(local)].load(std::memory_order_relaxed);
  }
  GroupBlock& own_block() const { return *own_; }
  const Mapping& mapping(int local) const { return *met_[static_cast<size_t>(local)]->mapping; }
  bool Dead(int local) const {
    return met_[static_cast<size_t>(local)]->dead.load(std::memory_order_acquire);
  }

  // The header to fill for the next Run; then Enter publishes it, waits for those of all peers and
  // compares the digests. Until the Run after the next, header(peer) stays as it is.
  RunHeader& NextHeader() { return own_->headers[(run_ + 1) & 1]; }
  Status Enter(const OperationContext& context);
  const RunHeader& header(int local) const { return block(local).headers[run_ & 1]; }

  // Returns when all local ranks have come to it.
  Status Barrier(const OperationContext& context);

  // One look at everything that ends a wait for `note.peer` (-1: for anybody) before its time.
  Status CheckWait(const OperationContext& context, const WaitNote& note);
  // Publishes what this rank waits for; {} for nothing.
  void NoteWait(const WaitNote& note);
  // The timeout that blames whoever `note.peer` waits for in the end.
  Status TimeoutError(const OperationContext& context, const WaitNote& note);
  // Where waits that last are told as well, because other transports reach ranks that this one
  // does not (engine/transport.h); null for nowhere.
  void SetWaitTracker(WaitTracker* tracker) { tracker_ = tracker; }
  WaitTracker* tracker() const { return tracker_; }
  // The error that ends this operation here, first reason wins. Tells the peers.
  Status Fail(const CommError& error);
  CommError ErrorOf(const OperationContext& context, CommErrorKind kind, int culprit_local,
                    std::string reason) const;

  // Wakes the owner of a block that may sleep for its mailboxes.
  void RingDoorbell(int local);
  // Sleeps until the doorbell rings, for one slice at most, unless `ready()` after all.
  template <typename Ready>
  void SleepForDoorbell(const Ready& ready) {
    own_->doorbell_sleeps.store(1, std::memory_order_seq_cst);
    const uint32_t before = own_->doorbell.load(std::memory_order_seq_cst);
    if (!ready()) FutexWait(&own_->doorbell, before, kSleepSeconds);
    own_->doorbell_sleeps.store(0, std::memory_order_relaxed);
  }

 private:
  bool HasCome(int local, const WaitNote& note) const;
  int FirstMissing(const WaitNote& note) const;
  bool AllHere(const WaitNote& note) const;
  // Announces that this rank is at its next sync point, whose word is `word`.
  void Arrive(std::atomic<uint32_t>* word, uint32_t value);
  Status AwaitAll(const OperationContext& context, WaitNote note);
  Status AwaitSlowly(const OperationContext& context, WaitNote note);
  void Sleep(const WaitNote& note);
  Status AttachMissing(const OperationContext& context);
  Status FindBlock(int local, const OperationContext& context);
  bool TryFindBlock(int local);
  // Meets those peers that are there but were not needed so far: one of them may have failed.
  void MeetOthers(double now_s);
  Status CompareHeaders(const OperationContext& context);
  Status PeersError(const OperationContext& context);
  void TellTracker(int local, double now_s);
  int Culprit(const WaitNote& note) const;
  void Publish(const Status& error);
  void WakeEverybody();

  // Constant after construction.
  Segment* const segment_;
  Peers* const peers_;
  const GroupInfo group_;
  FailureState* const failure_;
  std::vector<int> local_index_;  // by rank of the group
  int self_ = 0;
  const bool crowded_;
  // Constant after Open.
  DirectoryEntry* entry_ = nullptr;
  GroupBlock* own_ = nullptr;
  int listener_ = -1;

  // By local index; blocks_ also for the failure listener.
  std::vector<Peer*> met_;
  std::vector<DirectoryEntry*> entries_;
  std::vector<int> meet_tries_;  // of MeetOthers, by local index
  std::unique_ptr<std::atomic<GroupBlock*>[]> blocks_;
  int num_attached_ = 0;
  double met_others_s_ = 0;      // when it last ran

  WaitTracker* tracker_ = nullptr;
  double wait_since_s_ = 0;  // 0: no wait has lasted until a look at the clock
  bool told_tracker_ = false;

  bool by_counter_ = false;
  uint32_t run_ = 0;
  uint32_t barriers_ = 0;
  uint32_t sync_points_ = 0;  // by counter: headers and barriers together
};

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_GROUP_SYNC_H_
