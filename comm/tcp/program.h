// A stretch of a plan as one rank runs it over TCP: steps, and the messages to and from each peer
// in the order in which both ends expect them.
//
//   program.Build(context, rounds);
//   for (Peer& peer : program.peers()) ... peer.out, peer.in: messages of steps ...
//   program.Allowed(step)   // how far the step may go now
//
// A task becomes: at a source's rank a send to the owner; at the owner one combination of what
// comes in with what is here, and a send to each other target's rank; at a target's rank a receive.
//
//   order of the messages from one rank to another: by round; in a round first the sources of small
//   tasks, then the results of small tasks, then large tasks one after another, sources before
//   results. Both ends know all of that, and what a message waits for always stands before it,
//   so that ranks that take what comes in order never wait in a circle.
//
// Steps move from their first element to their last, and everyone sees how far they are (`done`). A
// step of a later round that touches the same memory follows an earlier one at that distance: no
// barrier between rounds, and what a reduction has just written goes out while it is still in the
// caches. Memory is compared by address, so that operations in place stay right.
// In rooted operations data may go one way only; there the receiver confirms, so that the sender
// learns of a mismatch as well.
// Thread-compatible. Cost: linear in the tasks; nothing is allocated once the vectors have grown.

#ifndef CRIA_COMM_TCP_PROGRAM_H_
#define CRIA_COMM_TCP_PROGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/engine/transport.h"
#include "comm/plan/plan.h"

namespace cria::comm::tcp {

// Memory that a step reads or writes, element by element as it moves on.
struct Access {
  std::byte* begin = nullptr;
  int64_t element_bytes = 1;
  bool write = false;
};

// One input of a combination; data is nullptr when it comes as a message.
struct Source {
  std::byte* data = nullptr;
  bool partial = false;
  int64_t element_bytes = 1;
};

// One result that stays here.
struct Target {
  std::byte* data = nullptr;
  bool partial = false;
  int64_t element_bytes = 1;
};

enum class StepKind : uint8_t { kSend, kReceive, kCombine };

struct Step {
  StepKind kind = StepKind::kSend;
  bool copies = false;  // kCombine: one source, the same bytes at all targets
  int round = 0;
  int task = 0;  // in the round
  int peer = 0;  // kSend, kReceive: of the group
  int64_t count = 0;
  int64_t element_bytes = 1;  // kSend, kReceive
  // kSend, kReceive: the memory. nullptr: what the combination `from` makes and keeps nowhere here.
  std::byte* data = nullptr;
  bool partial = false;  // kSend of a result: in which form
  int from = -1;         // kSend: the combination whose result it is
  // kCombine: into sources() and targets().
  int first_source = 0;
  int num_sources = 0;
  int first_target = 0;
  int num_targets = 0;
  int combine = -1;      // number among the combinations
  int first_result = 0;  // the sends of its results, one after another in steps()
  int num_results = 0;
  // Into accesses().
  int first_access = 0;
  int num_accesses = 0;

  int64_t done = 0;  // elements

  // Earlier steps that hold this one back; looked up once, when it first tries to move.
  static constexpr int kBlockersMax = 6;
  std::array<int, kBlockersMax> blockers = {};
  int num_blockers = -1;  // -1: not looked up; kBlockersMax + 1: too many, looked up each time
};

// One message: all of a send or a receive, or one source of a combination. Without a step it is a
// confirmation, of no bytes: "what you sent belongs to what I run".
struct PlanMessage {
  int step = -1;
  int source = -1;  // of the combination, -1 for a receive and a send
  int round = 0;
  int64_t bytes = 0;
};

struct Peer {
  int rank = 0;
  std::vector<PlanMessage> out;
  std::vector<PlanMessage> in;
};

// Tasks of up to this many bytes in one form are small (see above).
inline constexpr int64_t kSmallTaskBytes = 64 << 10;

class Program {
 public:
  // `context` and `rounds` are not kept.
  void Build(const OperationContext& context, int self, std::span<const Round> rounds);

  std::vector<Step>& steps() { return steps_; }
  std::span<Source> sources(const Step& step) {
    return std::span(sources_).subspan(static_cast<size_t>(step.first_source),
                                       static_cast<size_t>(step.num_sources));
  }
  std::span<Target> targets(const Step& step) {
    return std::span(targets_).subspan(static_cast<size_t>(step.first_target),
                                       static_cast<size_t>(step.num_targets));
  }
  std::span<Peer> peers() { return std::span(peers_).first(num_peers_); }
  int num_combines() const { return num_combines_; }

  // Up to which element the step may go, at most its count.
  int64_t Allowed(int step);
  // Every step is done.
  bool Done();
  // The first round with a step that is not done, as of the last Allowed or Done.
  int round() const {
    return first_open_ < steps_.size() ? steps_[first_open_].round : num_rounds_;
  }

 private:
  struct View {
    const OperationContext* context;
    int self;
    int round;
    int task_index;
    const Task* task;
    bool small;
  };

  std::byte* At(const View& view, const Region& region) const;
  Peer* PeerOf(int rank);
  void AddTask(const View& view, bool sources, bool results);
  void AddSourceSends(const View& view);
  void AddCombine(const View& view);
  void AddResultSends(const View& view, int combine_step);
  void AddReceives(const View& view);
  void AddConfirmations();
  Step* NewStep(const View& view, StepKind kind);
  void AddAccess(Step* step, std::byte* begin, int64_t element_bytes, bool write);
  int64_t AllowedBy(const Step& earlier, const Step& later) const;

  std::vector<Step> steps_;
  std::vector<Access> accesses_;
  std::vector<Source> sources_;
  std::vector<Target> targets_;
  std::vector<Peer> peers_;  // the first num_peers_ are in use; the others keep their memory
  std::vector<int> peer_of_rank_;
  std::vector<int> combine_of_task_;  // of the round being built: step, or -1
  size_t num_peers_ = 0;
  int num_combines_ = 0;
  int num_rounds_ = 0;
  size_t first_open_ = 0;  // all steps before it are done
};

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_PROGRAM_H_
