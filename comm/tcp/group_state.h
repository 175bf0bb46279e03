// What the thread that runs a group's operations and the domain's thread tell each other: what this
// rank runs and waits for, what its peers say about themselves, connections that peers opened, the
// error that ends all.
//
//   state->Begin(signature, timeout_s, /*transfers=*/false);
//   state->SetWaiting(world_rank);          // the domain's thread asks that rank what it does
//   CommError error = state->TimeoutError(...);   // who is at the end of the chain
//   state->End();
//
// Blame. A rank that waits asks ("ping") the one that it waits for; the answer ("pong") says
// whether that one waits too, and then whom it blames. So the verdict travels along the chain of
// waiting ranks, and every rank on it comes to name the one at its end: silent, or not in this
// operation. Thread-safe.

#ifndef CRIA_COMM_TCP_GROUP_STATE_H_
#define CRIA_COMM_TCP_GROUP_STATE_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/engine/failure.h"
#include "comm/engine/transport.h"
#include "comm/net/fd.h"
#include "comm/tcp/wire.h"

namespace cria::comm::tcp {

// A connection that a peer opened for this group, its hello read.
struct Accepted {
  Fd fd = {};
  HelloFixed hello = {};
};

// What the domain's thread asks about.
struct Waiting {
  int world = -1;  // -1: waits for nobody
  double since_s = 0;
  Ping ping = {};
};

class GroupState {
 public:
  // `failure` lives until Close. ResourceExhausted without a file descriptor.
  static StatusOr<std::shared_ptr<GroupState>> Create(const GroupInfo& info, FailureState* failure);

  const GroupInfo& info() const { return info_; }
  int self_world() const { return WorldOf(info_.rank); }
  int WorldOf(int rank) const { return info_.world_ranks[static_cast<size_t>(rank)]; }
  // -1 when this world rank is not of the group.
  int RankOf(int world) const;

  // The running thread.
  FailureState* failure() const { return failure_; }
  // From here on the domain's thread, which may still hold this object, leaves `failure` alone.
  void Close() CRIA_EXCLUDES(mu_);
  void Begin(const Signature& signature, double timeout_s, bool transfers) CRIA_EXCLUDES(mu_);
  void End() CRIA_EXCLUDES(mu_);
  // Whom this rank waits for, -1 for nobody. Returns true when that is news.
  bool SetWaiting(int world) CRIA_EXCLUDES(mu_);
  // The error of a deadline that passed, with the culprit as far as it is known.
  CommError TimeoutError(double timeout_s, double now_s) CRIA_EXCLUDES(mu_);
  std::vector<Accepted> TakeAccepted() CRIA_EXCLUDES(mu_);
  // Readable when a connection came or the group failed. DrainWake makes it unreadable.
  int wake_fd() const { return wake_.get(); }
  void DrainWake();
  void Wake();

  // The domain's thread.
  // The group's error, unless it is closed.
  void Fail(const Status& error) CRIA_EXCLUDES(mu_);
  bool failed_or_closed() CRIA_EXCLUDES(mu_);
  void Deliver(Accepted accepted) CRIA_EXCLUDES(mu_);
  Waiting waiting() CRIA_EXCLUDES(mu_);
  // The answer to a peer's question; *mismatch is the error when the two run different operations.
  Pong Answer(int from_world, const Ping& ping, double now_s, std::optional<CommError>* mismatch)
      CRIA_EXCLUDES(mu_);
  // Takes an answer; returns the error that it means, if any.
  std::optional<CommError> Heard(int from_world, const Pong& pong, double now_s) CRIA_EXCLUDES(mu_);
  Verdict Blame(double now_s) CRIA_EXCLUDES(mu_);
  // Those who asked within the last second, when the verdict is another than at the last call.
  std::vector<int> AskersToTell(double now_s) CRIA_EXCLUDES(mu_);
  // An error about a peer in terms of this rank and its running operation.
  CommError ErrorAbout(CommErrorKind kind, int world, std::string reason) CRIA_EXCLUDES(mu_);
  // The frame that tells the peers of this error, and the error that a peer's frame means here.
  Poison ToPoison(const Status& status) CRIA_EXCLUDES(mu_);
  Status FromPoison(const Poison& poison) CRIA_EXCLUDES(mu_);

 private:
  static constexpr size_t kHistory = 64;

  struct Report {
    double time_s = 0;
    Pong pong = {};
  };

  GroupState(const GroupInfo& info, FailureState* failure, Fd wake);
  Verdict BlameLocked(double now_s) CRIA_REQUIRES(mu_);
  const Signature* FindLocked(uint64_t sequence, uint16_t phase) const CRIA_REQUIRES(mu_);
  CommError ErrorLocked(CommErrorKind kind, int world, std::string reason) CRIA_REQUIRES(mu_);

  // Constant after construction.
  const GroupInfo info_;
  FailureState* const failure_;
  std::vector<std::pair<int, int>> rank_of_world_;  // sorted
  const Fd wake_;

  Mutex mu_;
  CondVar changed_;
  bool closed_ CRIA_GUARDED_BY(mu_) = false;
  int failing_ CRIA_GUARDED_BY(mu_) = 0;  // calls of Fail under way
  bool active_ CRIA_GUARDED_BY(mu_) = false;
  bool transfers_ CRIA_GUARDED_BY(mu_) = false;
  Signature current_ CRIA_GUARDED_BY(mu_);
  double timeout_s_ CRIA_GUARDED_BY(mu_) = 0;
  // The latest collectives, oldest overwritten: somebody may still wait in one that has ended here.
  std::array<Signature, kHistory> history_ CRIA_GUARDED_BY(mu_);
  size_t num_begun_ CRIA_GUARDED_BY(mu_) = 0;
  int waiting_world_ CRIA_GUARDED_BY(mu_) = -1;
  double waiting_since_s_ CRIA_GUARDED_BY(mu_) = 0;
  std::map<int, Report> reports_ CRIA_GUARDED_BY(mu_);  // by world rank, of this operation
  std::map<int, double> askers_ CRIA_GUARDED_BY(mu_);   // world rank: time
  Verdict told_ CRIA_GUARDED_BY(mu_);
  std::vector<Accepted> accepted_ CRIA_GUARDED_BY(mu_);
};

// The difference of two rank lists in words: "[0, 1, 2] here, [0, 2, 1] there; they differ first at
// position 1: 1 here, 2 there".
std::string ListDifference(const std::vector<int>& here, std::span<const int32_t> there);

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_GROUP_STATE_H_
