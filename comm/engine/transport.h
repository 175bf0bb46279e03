// How bytes move: the interface that shared memory (comm/shm) and TCP (comm/tcp) implement, one
// object a communicator, over one domain a process (segment or listening port, monitor thread).
// The communicator (engine/cria_communicator.h) is the only caller.
//
// A transport runs whole stretches of a plan: consecutive rounds of its link kind. Run is complete
// in itself: it makes sure that all participants run the same thing (Signature; a mismatch is an
// error that names both sides, on every participant), waits until the peers' buffers may be
// touched, moves and reduces, and returns when this rank's results are there and its buffers are
// its own again.
//
// Every wait ends: at OperationContext::deadline_s with kTimeout, at FailureState::failed() with
// that failure, at a lost peer with kPeerLost; the transport reports the error to FailureState
// (whose listeners tell the peers) and returns it. The culprit of a timeout is the rank that
// everybody waits for, not the neighbour that waits as well: ranks that wait say for whom,
// and the chain is followed to the one that is silent, or has not come to this operation.
// Thread-compatible: one Run or Exchange at a time; Wake and failure listeners from any thread.

#ifndef CRIA_COMM_ENGINE_TRANSPORT_H_
#define CRIA_COMM_ENGINE_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "comm/api/error.h"
#include "comm/api/operation.h"
#include "comm/engine/failure.h"
#include "comm/plan/plan.h"

namespace cria::comm {

// Which group a transport serves. Ranks below are those of the group.
struct GroupInfo {
  std::string name = {};
  uint64_t id = 0;  // the same on all ranks that agree on the name, the list and the parent
  int rank = 0;
  std::vector<int> world_ranks = {};  // by rank of the group
  // Those that this transport connects: for shm the ranks on this host, in rank order; for tcp all.
  std::vector<int> local_ranks = {};

  int size() const { return static_cast<int>(world_ranks.size()); }
};

// What all participants of a Run must agree on; plain bytes, so that it travels as it is.
struct Signature {
  uint64_t group_id = 0;
  uint64_t sequence = 0;
  uint64_t plan_digest = 0;
  int64_t count = 0;        // the V kinds: the sum
  int64_t input_bytes = 0;  // of the rank itself; for messages only, not compared
  int32_t root = -1;
  uint16_t phase = 0;  // number of the Run within the operation
  OpKind kind = OpKind::kBarrier;
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  Algorithm algorithm = Algorithm::kFlat;
  uint8_t reserved[6] = {0, 0, 0, 0, 0, 0};  // no padding: it is compared as bytes
};
static_assert(sizeof(Signature) == 56 && std::has_unique_object_representations_v<Signature>);

// True when two ranks run the same operation.
bool Agree(const Signature& a, const Signature& b);

// The error when they don't: what differs, with both values; `self` reports about `other`.
CommError MismatchError(const GroupInfo& group, const Signature& self, int other,
                        const Signature& theirs);

// Called at each step inside a Run or an Exchange: "enter", "round", "message", "leave". Tests stop
// or kill ranks there; nobody else sets it.
using StepHook = std::function<void(const char* step)>;

struct OperationContext {
  const Operation* operation = nullptr;
  Signature signature = {};
  const Plan* plan = nullptr;
  // Where kInput, kOutput and kScratch of this rank start; nullptr when it has none.
  std::byte* slots[3] = {nullptr, nullptr, nullptr};
  double deadline_s = 0;  // steady clock (MonotonicSeconds)
  double timeout_s = 0;   // what the deadline was made of, for messages
  const StepHook* on_step = nullptr;

  void Step(const char* step) const {
    if (on_step != nullptr) (*on_step)(step);
  }
};

// Bytes of an element of a slot under this plan: scratch of a reduction holds AccumulateType.
int64_t SlotElementBytes(const Plan& plan, Slot slot);

// One message of Exchange.
struct Transfer {
  int peer = 0;               // in the group
  std::byte* data = nullptr;  // read by a send, written by a recv
  int64_t bytes = 0;
  uint64_t number = 0;  // counts the messages of this direction of this pair, from 1
};

// What a group over several transports knows of its ranks' waits, whatever they wait on: the TCP
// transport keeps it, since it alone reaches every rank, and the others tell it. Thread-safe.
class WaitTracker {
 public:
  virtual ~WaitTracker() = default;
  // This rank is in an operation, from here to End: those who ask are told which.
  virtual void Begin(const OperationContext& context) = 0;
  virtual void End() = 0;
  // It waits for that rank of the group, for some time already; -1: for nobody any more.
  virtual void SetWaiting(int rank) = 0;
  // The error of its deadline: who is to blame, by what the ranks told each other.
  virtual CommError Timeout(double timeout_s) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // A transport of a group that has others too: where its waits are told. Before the first Run.
  virtual void SetWaitTracker(WaitTracker* tracker) { (void)tracker; }
  // The tracker that this transport keeps; null for none.
  virtual WaitTracker* wait_tracker() { return nullptr; }

  // Runs consecutive rounds of the plan. All ranks of local_ranks call it.
  virtual Status Run(const OperationContext& context, std::span<const Round> rounds) = 0;

  // Point to point: all these sends and receives at once, in any order, without deadlock among
  // groups of transfers that match. Only the two ranks of a pair take part; a size that differs is
  // a mismatch on both. Signature and plan of the context do not count but kind and sequence.
  virtual Status Exchange(const OperationContext& context, std::span<const Transfer> sends,
                          std::span<const Transfer> recvs) = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_TRANSPORT_H_
