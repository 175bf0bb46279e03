// Plans over shared memory: see README.md for the protocol. Thread-compatible, as Transport says.

#ifndef CRIA_COMM_SHM_SHM_TRANSPORT_H_
#define CRIA_COMM_SHM_SHM_TRANSPORT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/transport.h"
#include "comm/reduce/reduce.h"
#include "comm/shm/group_sync.h"
#include "comm/shm/mailbox.h"
#include "comm/shm/peers.h"
#include "comm/shm/segment.h"
#include "comm/shm/staging.h"
#include "comm/shm/windows.h"

namespace cria::comm {

class ShmTransport : public Transport {
 public:
  // All of them outlive this.
  ShmTransport(Segment* segment, Peers* peers, const GroupInfo& group, FailureState* failure);
  // Before anything else.
  Status Open() { return sync_.Open(); }

  void SetWaitTracker(WaitTracker* tracker) override { sync_.SetWaitTracker(tracker); }
  Status Run(const OperationContext& context, std::span<const Round> rounds) override;
  Status Exchange(const OperationContext& context, std::span<const Transfer> sends,
                  std::span<const Transfer> recvs) override;

 private:
  static constexpr int64_t kNonTemporalBytes = int64_t{4} << 20;

  bool IsTiny(const OperationContext& context, std::span<const Round> rounds) const;
  // The payloads travel in the headers; every rank reduces for itself.
  Status RunTiny(const OperationContext& context);
  static int64_t BytesStored(const OperationContext& context, const Round& round);
  Status RunRounds(const OperationContext& context, std::span<const Round> rounds);
  // One round, a tile at a time, because some rank has windows.
  Status RunSteps(const OperationContext& context, const Round& round);
  // How many steps the longest task of any rank takes; 0 when no rank has windows.
  StatusOr<int64_t> CountSteps(const OperationContext& context) const;
  // `count` elements of a task from its element `first` on; `step`: which windows serve.
  Status RunTask(const OperationContext& context, const Task& task, int64_t first, int64_t count,
                 int64_t step, bool non_temporal);
  struct Found {
    std::byte* data = nullptr;
    bool window = false;
  };
  StatusOr<Found> Find(const OperationContext& context, const Region& region, int64_t first,
                       int64_t count, int64_t step) const;

  GroupSync sync_;
  Staging staging_;
  Windows windows_;
  Mailbox mailbox_;
  int64_t num_steps_ = 0;  // of the Run at hand
  // Of the task at hand.
  std::vector<ReduceSource> sources_;
  std::vector<ReduceTarget> targets_;
  std::vector<void*> places_;
  std::vector<void*> window_places_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_SHM_TRANSPORT_H_
