// MPI's calls as this project wants them: 64-bit counts, Status, and waits that end.
//
//   CRIA_ASSIGN_OR_RETURN(auto runtime, MpiRuntime::Acquire(/*multiple_threads=*/true));
//   CRIA_ASSIGN_OR_RETURN(auto port, MpiPort::DuplicateWorld(runtime, false, wait));
//   port->AllReduce(nullptr, x, n, DataType::kFloat32, ReduceOp::kSum, wait);   // in place
//
// Counts are in elements, displacements and sizes in bytes where the name says so. Calls above
// MPI's int counts go in chunks, those that move bytes then from rank to rank. Reductions take the
// types and operations that MPI has: float32 and the integers; sum, min, max, prod.
// `blocking`: the blocking calls, which are MPI's fastest and ignore the wait; for benchmarks.
// Internal to comm/mpi. One thread at a time, but for Tell.

#ifndef CRIA_COMM_MPI_MPI_PORT_H_
#define CRIA_COMM_MPI_MPI_PORT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/types.h"
#include "comm/engine/failure.h"

namespace cria::comm {

// MPI_Init and MPI_Finalize. MPI has one life per process: all communicators share this.
class MpiRuntime {
 public:
  // The process's, made at the first call. FailedPrecondition when MPI has ended already or lacks
  // the thread level. MPI_Init meets the launcher and has no deadline of its own.
  static StatusOr<std::shared_ptr<MpiRuntime>> Acquire(bool multiple_threads);
  // MPI_Finalize, unless something broke: then it would wait for ranks that do not come.
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Calls from several threads at once are allowed.
  bool multiple_threads() const { return multiple_threads_; }
  void MarkBroken() { broken_.store(true, std::memory_order_relaxed); }

 private:
  MpiRuntime() = default;

  int rank_ = 0;
  int size_ = 1;
  bool multiple_threads_ = false;
  std::atomic<bool> broken_{false};
};

// What ends a wait.
struct MpiWait {
  double deadline_s = 0;                  // of the monotonic clock
  const FailureState* failure = nullptr;  // polled; its status ends the wait
  std::function<void()> listen = {};      // called every millisecond or so
};

struct MpiMessage {
  int peer = 0;
  void* data = nullptr;
  int64_t bytes = 0;
};

class MpiPort {
 public:
  // A duplicate of MPI_COMM_WORLD. Collective.
  static StatusOr<std::unique_ptr<MpiPort>> DuplicateWorld(std::shared_ptr<MpiRuntime> runtime,
                                                           bool blocking, const MpiWait& wait);
  // A communicator of these ranks of the world (MPI_Comm_create_group): the ranks of the group call
  // it with the same list and tag, nobody else. It blocks, so that they meet before, by `wait`.
  // Cost: the meeting (2 messages a rank) and log2(n) messages to agree on a context.
  static StatusOr<std::unique_ptr<MpiPort>> CreateGroup(std::shared_ptr<MpiRuntime> runtime,
                                                        bool blocking,
                                                        const std::vector<int>& world_ranks,
                                                        uint64_t id, const MpiWait& wait);
  ~MpiPort();
  MpiPort(const MpiPort&) = delete;
  MpiPort& operator=(const MpiPort&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // input == nullptr or == output: in place.
  Status AllReduce(const void* input, void* output, int64_t count, DataType dtype, ReduceOp op,
                   const MpiWait& wait);
  // output counts at the root alone.
  Status Reduce(const void* input, void* output, int64_t count, DataType dtype, ReduceOp op,
                int root, const MpiWait& wait);
  // input [sum(counts)], output [counts[rank]], apart.
  Status ReduceScatter(const void* input, void* output, std::span<const int64_t> counts,
                       DataType dtype, ReduceOp op, const MpiWait& wait);
  Status Broadcast(void* data, int64_t bytes, int root, const MpiWait& wait);
  // `input` may be at its place in `output`, here and in the next two.
  Status AllGather(const void* input, void* output, int64_t bytes, const MpiWait& wait);
  Status AllGatherV(const void* input, void* output, std::span<const int64_t> bytes,
                    std::span<const int64_t> displacements, const MpiWait& wait);
  Status Gather(const void* input, void* output, int64_t bytes, int root, const MpiWait& wait);
  Status Scatter(const void* input, void* output, int64_t bytes, int root, const MpiWait& wait);
  // input == output: in place.
  Status AllToAll(const void* input, void* output, int64_t bytes, const MpiWait& wait);
  Status Barrier(const MpiWait& wait);
  // All these messages at once, matched in order per pair and channel (0 or more, small).
  Status Exchange(std::span<const MpiMessage> sends, std::span<const MpiMessage> recvs, int channel,
                  const MpiWait& wait);
  // The same on two channels at once.
  struct Channel {
    std::span<const MpiMessage> sends;
    std::span<const MpiMessage> recvs;
    int number = 0;
  };
  Status Exchange(std::span<const Channel> channels, const MpiWait& wait);

  // Sends a note to every other rank without waiting; any thread when the runtime allows that.
  void Tell(const std::string& note);
  // A note that has come, with its sender.
  struct Note {
    int rank = 0;
    std::string text;
  };
  std::optional<Note> Hear();

 private:
  struct Handle;

  MpiPort(std::shared_ptr<MpiRuntime> runtime, bool blocking, std::unique_ptr<Handle> handle);

  template <typename Start, typename Block>
  Status Run(const char* call, const MpiWait& wait, const Start& start, const Block& block);

  const std::shared_ptr<MpiRuntime> runtime_;
  const bool blocking_;
  const std::unique_ptr<Handle> handle_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_MPI_MPI_PORT_H_
