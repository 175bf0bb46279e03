// Our communicator: finds the plan of each operation and has the transports run it.
//
//   CriaCommunicator world(job, {.name = "world", .world_ranks = {0, 1, 2, 3}});
//
// Made by JoinWorld (engine/world.h) and by NewGroup; api/communicator.h says what it promises.
// A call is: refuse (wrong argument, forked child, broken communicator), number it, then run it
// here or queue it. Running is: plan from the cache, scratch, then each stretch of rounds by its
// transport. Numbers: collectives count from 1 in each group, on all ranks alike; sends and
// receives count on their own, since not all ranks take part.

#ifndef CRIA_COMM_ENGINE_CRIA_COMMUNICATOR_H_
#define CRIA_COMM_ENGINE_CRIA_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/api/communicator.h"
#include "comm/api/error.h"
#include "comm/engine/failure.h"
#include "comm/engine/job.h"
#include "comm/engine/plan_cache.h"
#include "comm/engine/transport.h"
#include "comm/engine/work_queue.h"
#include "debug/observer.h"

namespace cria::comm {

class CriaCommunicator : public Communicator {
 public:
  struct Options {
    std::string name;
    std::vector<int> world_ranks;
    uint64_t parent_id = 0;
    uint64_t instance = 0;
    double timeout_s = 300;
  };

  // This rank is among options.world_ranks. No communication.
  static StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Job> job, Options options);
  // Waits until pending operations are over.
  ~CriaCommunicator() override;

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name; }
  const char* backend() const override { return "cria"; }
  const std::vector<int>& world_ranks() const override { return group_.world_ranks; }

  Status GroupStart() override;
  Work GroupEnd(const CallOptions& call) override;
  StatusOr<std::unique_ptr<Communicator>> NewGroup(const NewGroupOptions& options) override;
  void Abort(const std::string& reason) override;
  Status failure() const override { return failure_.status(); }
  StatusOr<std::unique_ptr<SharedBuffer>> Allocate(int64_t bytes) override;
  double timeout_s() const override { return timeout_s_.load(std::memory_order_relaxed); }
  void SetTimeout(double seconds) override { timeout_s_.store(seconds, std::memory_order_relaxed); }

 protected:
  Work Submit(const Operation& operation) override;

 private:
  // One operation on its way: with its number and, where somebody watches, its event.
  struct Call {
    Operation operation;
    uint64_t sequence = 0;
    double deadline_s = 0;
    double timeout_s = 0;
    const char* algorithm = "";
    // Of sends and receives: the messages, numbered.
    std::vector<Transfer> sends;
    std::vector<Transfer> recvs;
  };

  CriaCommunicator(std::shared_ptr<Job> job, const Options& options);
  Status OpenTransports();

  // Why no operation may start now; OK when one may.
  Status Refusal(const Operation& operation) const;
  Work Start(Call call, bool async);
  Status Run(Call& call);
  Status RunCall(Call& call);
  Status RunCollective(Call& call);
  // Moves nothing, but returns only when all ranks are in this operation, and agree that they are.
  Status Agree(Call& call);
  OperationContext ContextOf(Call& call, const Plan& plan) const;
  Status RunStretches(const CachedPlan& cached, OperationContext* context);
  // A message to and from each rank: no rank knows the counts between the others, so there is no
  // plan; each pair checks its own.
  Status RunAllToAllV(Call& call);
  Status RunTransfers(const Call& call);
  // A group of one rank: moves the data itself.
  void RunAlone(const Operation& operation);
  // Moves what this rank sends to itself, in order.
  Status MoveOwnTransfers(const Call& call);

  Transfer NumberedSend(const Operation& operation);
  Transfer NumberedRecv(const Operation& operation);
  Transport* TransportOf(LinkKind link) const;
  Signature SignatureOf(const Call& call) const;
  // Where input, output and scratch start; scratch grows as plans need it.
  Status PrepareSlots(const Call& call, const Plan& plan, OperationContext* context);
  Status PrepareScratch(const Plan& plan, OperationContext* context);
  StatusOr<std::byte*> Scratch(int64_t bytes);
  CommError ErrorOf(const Operation& operation, uint64_t sequence, CommErrorKind kind,
                    std::string reason) const;
  // The error as it is, or with the fields that it lacks.
  Status AsCommError(const Call& call, const Status& status) const;
  debug::OperationEvent EventOf(const Call& call) const;

  // Constant after construction.
  const std::shared_ptr<Job> job_;
  GroupInfo group_;
  GroupTopology topology_;
  std::vector<bool> local_;  // by rank: reached through shared memory

  // Own synchronization.
  FailureState failure_;
  std::atomic<double> timeout_s_;
  // Of the thread that runs operations.
  std::unique_ptr<Transport> shm_;
  std::unique_ptr<Transport> tcp_;
  PlanCache plans_;
  std::unique_ptr<SharedBuffer> scratch_;
  std::unique_ptr<SharedBuffer> in_place_copy_;
  // Of the calling thread.
  uint64_t num_collectives_ = 0;
  uint64_t num_transfers_ = 0;
  std::vector<uint64_t> num_sent_;  // by peer
  std::vector<uint64_t> num_received_;
  bool in_group_ = false;
  Call grouped_;
  std::map<std::pair<std::string, std::vector<int>>, uint64_t> instances_;
  // Last: its thread uses all of the above.
  std::unique_ptr<WorkQueue> queue_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_CRIA_COMMUNICATOR_H_
