// Our communicator: finds the plan of each operation and has the transports run it.
//
//   CRIA_ASSIGN_OR_RETURN(auto world, CriaCommunicator::Create(job, {.name = "world", ...}));
//
// Made by JoinWorld (engine/world.h) and by NewGroup; api/communicator.h says what it promises, and
// backend/serial_communicator.h numbers and queues the calls. Running one is: plan from the cache,
// scratch, then each stretch of the plan's rounds by its transport.

#ifndef CRIA_COMM_ENGINE_CRIA_COMMUNICATOR_H_
#define CRIA_COMM_ENGINE_CRIA_COMMUNICATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "comm/backend/serial_communicator.h"
#include "comm/engine/job.h"
#include "comm/engine/plan_cache.h"
#include "comm/engine/transport.h"

namespace cria::comm {

class CriaCommunicator : public SerialCommunicator {
 public:
  struct Options {
    std::string name = {};
    std::vector<int> world_ranks = {};
    uint64_t parent_id = 0;
    uint64_t instance = 0;  // as in engine/group_id.h
    double timeout_s = 300;
  };

  // This rank is among options.world_ranks. No communication.
  static StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Job> job,
                                                        const Options& options);
  // Waits until pending operations are over.
  ~CriaCommunicator() override;

  const char* backend() const override { return "cria"; }
  Work GroupEnd(const CallOptions& call) override;
  StatusOr<std::unique_ptr<Communicator>> NewGroup(const NewGroupOptions& options) override;
  StatusOr<std::unique_ptr<SharedBuffer>> Allocate(int64_t bytes) override;

 protected:
  Work Submit(const Operation& operation) override;
  Status Execute(const Call& call) override;
  std::string_view AlgorithmOf(const Operation& operation) override;

 private:
  // The messages of sends and receives, numbered by pair and direction.
  struct Transfers {
    std::vector<Transfer> sends;
    std::vector<Transfer> recvs;
  };

  CriaCommunicator(std::shared_ptr<Job> job, const Options& options, GroupInfo group);
  Status OpenTransports();
  Status RefuseInChild(const Operation& operation) const;

  Status RunCollective(const Call& call);
  // Moves nothing, but returns only when all ranks are in this operation, and agree that they are.
  Status Agree(const Call& call);
  OperationContext ContextOf(const Call& call, const Plan& plan) const;
  Status RunStretches(const CachedPlan& cached, OperationContext* context);
  // A message to and from each rank: no rank knows the counts between the others, so there is no
  // plan; each pair checks its own.
  Status RunAllToAllV(const Call& call);
  Status RunTransfers(const Call& call, const Transfers& transfers);
  // Moves what this rank sends to itself, in order.
  Status MoveOwnTransfers(const Call& call, const Transfers& transfers);
  // A group of one rank: moves the data itself.
  static void RunAlone(const Operation& operation);

  // Numbers a send or a receive, and adds it.
  void Add(const Operation& operation, Transfers* transfers);
  Transport* TransportOf(LinkKind link) const;
  Signature SignatureOf(const Call& call) const;
  // Where input, output and scratch start; scratch grows as plans need it.
  Status PrepareSlots(const Operation& operation, const Plan& plan, OperationContext* context);
  Status PrepareScratch(const Plan& plan, OperationContext* context);
  // `buffer` with at least these bytes.
  StatusOr<std::byte*> Grow(std::unique_ptr<SharedBuffer>* buffer, int64_t bytes);

  // Constant after construction.
  const std::shared_ptr<Job> job_;
  const GroupInfo group_;  // without local_ranks
  const GroupTopology topology_;
  std::vector<bool> local_;  // by rank: reached through shared memory

  // Of the thread that runs operations.
  std::unique_ptr<Transport> shm_;
  std::unique_ptr<Transport> tcp_;
  PlanCache plans_;
  std::unique_ptr<SharedBuffer> scratch_;
  std::unique_ptr<SharedBuffer> in_place_copy_;
  std::vector<uint64_t> num_sent_;  // by peer
  std::vector<uint64_t> num_received_;
  // Of the calling thread.
  std::map<std::pair<std::string, std::vector<int>>, uint64_t> instances_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_CRIA_COMMUNICATOR_H_
