// Runs a stretch of a plan over a group's links: all sends and receives at once, from the calling
// thread, without ever blocking on one of them.
//
//   Runner runner(state, links, domain);
//   runner.Run(context, rounds)
//
// A reduction's incoming sources are read piece by piece into staging memory that fits the cache
// and combined at once, in the order in which the task lists its sources, whatever the order of
// arrival; results go out piece by piece from where they were written. Copies are received where
// they belong. Memory: at most about kStageBytes for each combination that is under way.
// Single-threaded.

#ifndef CRIA_COMM_TCP_RUNNER_H_
#define CRIA_COMM_TCP_RUNNER_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/engine/transport.h"
#include "comm/reduce/reduce.h"
#include "comm/tcp/group_state.h"
#include "comm/tcp/links.h"
#include "comm/tcp/program.h"
#include "comm/tcp/waiter.h"

namespace cria::comm::tcp {

class Runner {
 public:
  Runner(GroupState* state, Links* links, DomainHooks* domain)
      : state_(state), links_(links), domain_(domain) {}

  // OK, or the error that ends the group; it is not reported to FailureState here.
  Status Run(const OperationContext& context, std::span<const Round> rounds);

 private:
  // One direction of a link: which message, how far.
  struct Cursor {
    size_t next = 0;
    MessageHeader header = {};
    size_t header_done = 0;
    int64_t done = 0;      // bytes of payload
    bool blocked = false;  // the socket said so
    int stream = 0;        // which
  };
  struct Channel {
    Peer* peer = nullptr;
    Link* link = nullptr;
    Cursor out = {};
    Cursor in = {};
    bool confirmed = false;  // a header of the peer's was right
  };
  // A combination under way: the piece of it that is being filled.
  struct Combine {
    bool started = false;
    int64_t piece_count = 0;  // elements of a full piece
    int64_t begin = 0;        // of this piece
    int num_missing = 0;      // sources of this piece that are not complete
    std::byte* stage = nullptr;
    int64_t stage_bytes = 0;                     // of one input
    std::byte* results[2] = {nullptr, nullptr};  // finished, partial: kept nowhere else
    int block = -1;
  };
  struct Block {
    std::unique_ptr<std::byte[]> data;
    int64_t bytes = 0;
    bool used = false;
  };

  void Start(std::span<const Round> rounds);
  Status Pass(bool* moved);
  bool Finished();
  Status Sleep(Waiter* waiter);

  Status PumpOut(Channel* channel, bool* moved);
  Status PumpIn(Channel* channel, bool* moved);
  Status WritePiece(Channel* channel, const PlanMessage& message, bool* moved);
  Status ReadPiece(Channel* channel, const PlanMessage& message, bool* moved);
  Status CheckHeader(Channel* channel, const PlanMessage& message);
  // Payload that may go out now, and where it lies; empty when there is none.
  std::span<std::byte> Sendable(const PlanMessage& message, int64_t done);
  // Where payload may go now.
  std::span<std::byte> Receivable(const PlanMessage& message, int64_t done);
  void Received(const PlanMessage& message, int64_t done, int64_t bytes);

  Combine& CombineOf(const Step& step) { return combines_[static_cast<size_t>(step.combine)]; }
  void StartCombine(int step);
  int64_t PieceEnd(const Step& step);
  bool ResultsSent(const Step& step, int64_t until);
  // Combines pieces as long as their sources are there.
  bool TryCombine(int step);
  void CombinePiece(Step* step, Combine* combine);
  int TakeBlock(int64_t bytes);

  GroupState* const state_;
  Links* const links_;
  DomainHooks* const domain_;
  Program program_;
  const OperationContext* context_ = nullptr;
  ReduceKernel kernel_;
  std::vector<Channel> channels_;
  std::vector<Combine> combines_;
  std::vector<int64_t> filled_;  // by source: bytes of the piece that are there
  std::vector<int> waiting_;     // combinations that have not ended
  std::vector<Block> blocks_;
  std::vector<ReduceSource> reduce_sources_;
  std::vector<ReduceTarget> reduce_targets_;
  std::vector<void*> copy_targets_;
  std::vector<pollfd> entries_;
};

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_RUNNER_H_
