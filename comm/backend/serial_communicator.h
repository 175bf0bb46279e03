// The half of a communicator that does not depend on what moves the bytes: sequence numbers,
// deadlines, the first failure, the queue of asynchronous operations, sends and receives between
// GroupStart and GroupEnd, calls of the observer. A backend adds Execute and NewGroup; ours
// (engine/cria_communicator.h), MPI's and gloo's do.
//
//   class FooCommunicator : public SerialCommunicator {
//     ~FooCommunicator() override { StopQueue(); }
//     Status Execute(const Call& call) override { switch (call.operation->kind) ... }
//   };
//
// Execute runs one operation to its end; calls come one at a time, in the order of submission, from
// the caller's thread or, while asynchronous ones are pending, from the queue's. An error that
// Execute returns becomes a CommError, and breaks the communicator unless it is Unimplemented or
// was made by BadArgument. Thread-safety as communicator.h says.

#ifndef CRIA_COMM_BACKEND_SERIAL_COMMUNICATOR_H_
#define CRIA_COMM_BACKEND_SERIAL_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "comm/api/error.h"
#include "comm/api/operation.h"
#include "comm/engine/failure.h"
#include "comm/engine/work_queue.h"
#include "debug/observer.h"

namespace cria::comm {

class SerialCommunicator : public Communicator {
 public:
  struct Identity {
    std::string name;
    int rank = 0;
    std::vector<int> world_ranks = {};  // by rank
    double timeout_s = 300;
    debug::Observer* observer = nullptr;  // may be null; outlives the communicator
    uint64_t id = 0;                      // engine/group_id.h; 0: of the name and the ranks alone
  };

  explicit SerialCommunicator(Identity identity);
  // Derived classes have called StopQueue.
  ~SerialCommunicator() override;
  SerialCommunicator(const SerialCommunicator&) = delete;
  SerialCommunicator& operator=(const SerialCommunicator&) = delete;

  int rank() const override { return identity_.rank; }
  int size() const override { return static_cast<int>(identity_.world_ranks.size()); }
  const std::string& name() const override { return identity_.name; }
  const std::vector<int>& world_ranks() const override { return identity_.world_ranks; }
  Status GroupStart() override;
  Work GroupEnd(const CallOptions& call = {}) override;
  void Abort(const std::string& reason) override;
  Status failure() const override { return failure_.status(); }
  double timeout_s() const override { return timeout_s_.load(std::memory_order_relaxed); }
  void SetTimeout(double seconds) override { timeout_s_.store(seconds, std::memory_order_relaxed); }

 protected:
  // One operation on its way. `members` are the sends and receives of a kGroup.
  struct Call {
    const Operation* operation = nullptr;
    std::span<const Operation> members = {};
    uint64_t sequence = 0;
    double deadline_s = 0;  // of the monotonic clock; may be moved closer, never passed
    double timeout_s = 0;   // what the deadline was made of
  };

  virtual Status Execute(const Call& call) = 0;
  // For the observer, on the thread that runs the operation; the view lives as long as the
  // communicator.
  virtual std::string_view AlgorithmOf(const Operation& operation);

  // Runs what is queued, ends the queue's thread. In a derived destructor, first.
  void StopQueue() { queue_.reset(); }

  // The error of a call, told as api/error.h wants it.
  Status MakeError(const Call& call, CommErrorKind kind, const std::string& reason,
                   int culprit = -1) const;
  // kTimeout with the seconds that were given.
  Status Timeout(const Call& call) const;

  FailureState& failure_state() { return failure_; }
  const FailureState& failure_state() const { return failure_; }
  const Identity& identity() const { return identity_; }
  uint64_t group_id() const { return group_id_; }

  Work Submit(const Operation& operation) override;

 private:
  Work Enqueue(const Operation& operation, std::vector<Operation> members);
  Status RunCall(const Call& call);
  Status Finished(const Call& call, Status status);
  debug::OperationEvent EventOf(const Call& call, std::string_view algorithm) const;

  // Constant after construction.
  const Identity identity_;
  const uint64_t group_id_;
  // Own synchronisation.
  std::atomic<double> timeout_s_;
  FailureState failure_;
  // Of the calling thread. Collectives count on all ranks alike; sends, receives and their groups
  // for themselves, since not all ranks take part.
  uint64_t num_collectives_ = 0;
  uint64_t num_transfers_ = 0;
  bool in_group_ = false;
  std::vector<Operation> group_;
  std::unique_ptr<WorkQueue> queue_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BACKEND_SERIAL_COMMUNICATOR_H_
