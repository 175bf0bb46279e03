// A group of ranks and the collectives among them: the one interface of all backends (ours over
// shared memory and TCP, MPI, and the peers that benchmarks compare with).
//
//   CRIA_ASSIGN_OR_RETURN(auto world, comm::JoinWorld({.environment = environment}));  // engine/
//   CRIA_RETURN_IF_ERROR(
//       world->AllReduce({.input = g, .output = g, .count = n, .op = ReduceOp::kAvg}).Wait());
//   CRIA_ASSIGN_OR_RETURN(auto tp, world->NewGroup({.ranks = {0, 1}, .name = "tp"}));
//
// Every rank of the group calls the same operations in the same order, with the same count, type,
// reduction and root; a rank that does not gets an error, as all others do (api/error.h), and
// none hangs. Without CallOptions::async the call returns when the operation is over (done()
// holds); with it, operations run in order on a thread of the communicator, and the buffers are the
// operation's until then. In place is allowed wherever the result's place is clear (operation.h).
// Results are the same bits on all ranks, and from run to run.
//
// After an error of the world (peer lost, timeout, mismatch, abort) the communicator is broken:
// every later call returns the first error. An argument that is wrong on this rank alone is refused
// before anything is sent, and breaks nothing here; the others meet their deadline.
//
// Thread-safety: Abort and failure may be called from any thread at any time; the operations of one
// communicator from one thread at a time. Different communicators are independent.
// Errors: InvalidArgument (call or mismatch), DeadlineExceeded, Unavailable (peer lost), Cancelled
// (aborted), Unimplemented (a backend without the operation), each a CommError (api/error.h).

#ifndef CRIA_COMM_API_COMMUNICATOR_H_
#define CRIA_COMM_API_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/operation.h"
#include "comm/api/types.h"
#include "comm/api/work.h"

namespace cria::comm {

struct CallOptions {
  double timeout_s = 0;  // 0: the communicator's
  bool async = false;
};

struct AllReduceOptions {
  const void* input = nullptr;  // [count]
  void* output = nullptr;       // [count], may be `input`
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  CallOptions call = {};
};
struct ReduceOptions {
  const void* input = nullptr;  // [count]
  void* output = nullptr;       // [count] at the root, elsewhere untouched
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  CallOptions call = {};
};
struct BroadcastOptions {
  void* buffer = nullptr;  // [count]: read at the root, written elsewhere
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  int root = 0;
  CallOptions call = {};
};
struct AllGatherOptions {
  const void* input = nullptr;  // [count]
  void* output = nullptr;       // [size * count], in rank order
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  CallOptions call = {};
};
struct AllGatherVOptions {
  const void* input = nullptr;  // [counts[rank]]
  void* output = nullptr;       // [sum(counts)], or by displacements
  std::span<const int64_t> counts = {};
  std::span<const int64_t> displacements = {};
  DataType dtype = DataType::kFloat32;
  CallOptions call = {};
};
struct ReduceScatterOptions {
  const void* input = nullptr;  // [size * count]
  void* output = nullptr;       // [count]: this rank's part of the sum
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  CallOptions call = {};
};
struct ReduceScatterVOptions {
  const void* input = nullptr;  // [sum(counts)]
  void* output = nullptr;       // [counts[rank]]
  std::span<const int64_t> counts = {};
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  CallOptions call = {};
};
struct AllToAllOptions {
  const void* input = nullptr;  // [size * count]: part i goes to rank i
  void* output = nullptr;       // [size * count]: part i comes from rank i; may be `input`
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  CallOptions call = {};
};
struct AllToAllVOptions {
  const void* input = nullptr;
  void* output = nullptr;  // never `input`
  std::span<const int64_t> send_counts = {};
  std::span<const int64_t> recv_counts = {};
  std::span<const int64_t> send_displacements = {};
  std::span<const int64_t> recv_displacements = {};
  DataType dtype = DataType::kFloat32;
  CallOptions call = {};
};
struct GatherOptions {
  const void* input = nullptr;  // [count]
  void* output = nullptr;       // [size * count] at the root
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  int root = 0;
  CallOptions call = {};
};
struct ScatterOptions {
  const void* input = nullptr;  // [size * count] at the root
  void* output = nullptr;       // [count]
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  int root = 0;
  CallOptions call = {};
};
struct SendOptions {
  const void* buffer = nullptr;
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  int peer = 0;
  CallOptions call = {};
};
struct RecvOptions {
  void* buffer = nullptr;
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  int peer = 0;
  CallOptions call = {};
};
struct BarrierOptions {
  CallOptions call = {};
};

struct NewGroupOptions {
  std::vector<int>
      ranks;  // of this communicator, in the new group's order; this rank is among them
  std::string name = {};
};

// Memory that peers on the same host read and write directly, where the backend has such a thing.
// Belongs to the communicator that gave it; freed by the destructor, before that communicator.
class SharedBuffer {
 public:
  virtual ~SharedBuffer() = default;
  virtual void* data() const = 0;
  virtual int64_t bytes() const = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;
  // "cria", "mpi", "gloo".
  virtual const char* backend() const = 0;
  // The ranks of the world, by rank of this group.
  virtual const std::vector<int>& world_ranks() const = 0;

  Work AllReduce(const AllReduceOptions& options);
  Work Reduce(const ReduceOptions& options);
  Work Broadcast(const BroadcastOptions& options);
  Work AllGather(const AllGatherOptions& options);
  Work AllGatherV(const AllGatherVOptions& options);
  Work ReduceScatter(const ReduceScatterOptions& options);
  Work ReduceScatterV(const ReduceScatterVOptions& options);
  Work AllToAll(const AllToAllOptions& options);
  Work AllToAllV(const AllToAllVOptions& options);
  Work Gather(const GatherOptions& options);
  Work Scatter(const ScatterOptions& options);
  Work Send(const SendOptions& options);
  Work Recv(const RecvOptions& options);
  Work Barrier(const BarrierOptions& options = {});

  // Sends and receives between the two run at once, in any order, without deadlock; GroupEnd
  // returns their common outcome. Collectives between them are refused.
  virtual Status GroupStart() = 0;
  virtual Work GroupEnd(const CallOptions& call = {}) = 0;

  // A group of some of these ranks, without communication: all its ranks call this with the same
  // list and name, in any order among groups; a rank that passes another list gets an error at
  // the first use. The new group is independent of this one.
  virtual StatusOr<std::unique_ptr<Communicator>> NewGroup(const NewGroupOptions& options) = 0;
  // NewGroup by colour: one all_gather, then ranks of the same colour form a group, ordered by
  // (key, rank). A negative colour gets nullptr.
  StatusOr<std::unique_ptr<Communicator>> Split(int color, int key, const std::string& name);
  // The group without these ranks, also when this one is broken by their death: the survivors
  // call it with the same list. No communication.
  StatusOr<std::unique_ptr<Communicator>> Shrink(const std::vector<int>& excluded);

  // Ends every wait on this communicator, here and on its peers, within 100 ms, with Cancelled and
  // this reason. The first reason wins. Any thread.
  virtual void Abort(const std::string& reason) = 0;
  // The error that broke the communicator; OK while it works. Any thread.
  virtual Status failure() const = 0;

  // Memory for buffers of large operations: peers on this host need no copy. The default gives
  // private memory aligned to 64 bytes.
  virtual StatusOr<std::unique_ptr<SharedBuffer>> Allocate(int64_t bytes);

  // What a call takes when it names no timeout.
  virtual double timeout_s() const = 0;
  virtual void SetTimeout(double seconds) = 0;

 protected:
  // Runs an operation that ValidateOperation took. Kinds as in operation.h but kGroup.
  virtual Work Submit(const Operation& operation) = 0;

 private:
  Work Checked(const Operation& operation);
};

}  // namespace cria::comm

#endif  // CRIA_COMM_API_COMMUNICATOR_H_
