#include "comm/tcp/group_state.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "comm/net/socket.h"

namespace cria::comm::tcp {
namespace {

// A rank that did not answer for this long is called silent; less when the deadline is near.
constexpr double kSilentSeconds = 1.0;
constexpr double kAskerSeconds = 1.0;

bool SamePlace(const Signature& a, const Signature& b) {
  return a.sequence == b.sequence && a.phase == b.phase;
}

bool Before(const Signature& a, const Signature& b) {
  return a.sequence != b.sequence ? a.sequence < b.sequence : a.phase < b.phase;
}

std::string RankText(const GroupState& group, int world) {
  const int rank = group.RankOf(world);
  return rank < 0 ? StrCat("world rank ", world) : StrCat("rank ", rank);
}

std::string StateText(const Verdict& verdict) {
  switch (verdict.state) {
    case PeerState::kSilent:
      return StrCat("has not answered for ", HumanSeconds(verdict.silent_ms * 1e-3),
                    " (stopped, or out of reach)");
    case PeerState::kAbsent:
      return StrCat("is alive but has not come to this operation; its last was #",
                    verdict.sequence);
    case PeerState::kBusy:
      return StrCat("is alive, in operation #", verdict.sequence, ", and waits for nobody");
    case PeerState::kNoGroup:
      return "is alive but has not created this group";
    case PeerState::kClosed:
      return "is alive but has closed this group";
    case PeerState::kFinished:
      return StrCat("is alive and has left this operation; its last was #", verdict.sequence);
  }
  return "is in an unknown state";
}

std::string ListText(std::span<const int32_t> list) {
  constexpr size_t kShown = 16;
  std::string text = "[";
  for (size_t i = 0; i < std::min(list.size(), kShown); ++i) {
    text += StrCat(i == 0 ? "" : ", ", list[i]);
  }
  if (list.size() > kShown) text += StrCat(", ... ", list.size(), " ranks");
  return text + "]";
}

}  // namespace

std::string ListDifference(const std::vector<int>& here, std::span<const int32_t> there) {
  std::string text = StrCat(ListText(here), " here, ", ListText(there), " there");
  const size_t common = std::min(here.size(), there.size());
  for (size_t i = 0; i < common; ++i) {
    if (here[i] == there[i]) continue;
    return text + StrCat("; they differ first at position ", i, ": ", here[i], " here, ", there[i],
                         " there");
  }
  if (here.size() != there.size()) {
    return text + StrCat("; ", here.size(), " ranks here, ", there.size(), " there");
  }
  return text + "; the lists are equal, but not what the groups were made from, or how often";
}

StatusOr<std::shared_ptr<GroupState>> GroupState::Create(const GroupInfo& info,
                                                         FailureState* failure) {
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return SocketError(errno, "eventfd");
  return std::shared_ptr<GroupState>(new GroupState(info, failure, std::move(wake)));
}

GroupState::GroupState(const GroupInfo& info, FailureState* failure, Fd wake)
    : info_(info), failure_(failure), wake_(std::move(wake)) {
  for (int rank = 0; rank < info_.size(); ++rank) rank_of_world_.emplace_back(WorldOf(rank), rank);
  std::sort(rank_of_world_.begin(), rank_of_world_.end());
}

int GroupState::RankOf(int world) const {
  const auto found =
      std::lower_bound(rank_of_world_.begin(), rank_of_world_.end(), std::pair(world, -1));
  return found != rank_of_world_.end() && found->first == world ? found->second : -1;
}

void GroupState::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  while (failing_ > 0) changed_.WaitFor(&mu_, 1.0);
}

// Without the lock where listeners are called: they ask this object.
void GroupState::Fail(const Status& error) {
  {
    MutexLock lock(&mu_);
    if (closed_) return;
    ++failing_;
  }
  failure_->Fail(error);
  MutexLock lock(&mu_);
  --failing_;
  changed_.NotifyAll();
}

bool GroupState::failed_or_closed() {
  MutexLock lock(&mu_);
  return closed_ || failure_->failed();
}

void GroupState::Begin(const Signature& signature, double timeout_s, bool transfers) {
  MutexLock lock(&mu_);
  active_ = true;
  transfers_ = transfers;
  current_ = signature;
  timeout_s_ = timeout_s;
  if (!transfers) history_[num_begun_++ % kHistory] = signature;
  reports_.clear();
}

void GroupState::End() {
  MutexLock lock(&mu_);
  active_ = false;
  waiting_world_ = -1;
}

bool GroupState::SetWaiting(int world) {
  MutexLock lock(&mu_);
  if (waiting_world_ == world) return false;
  waiting_world_ = world;
  waiting_since_s_ = RealClock()->MonotonicSeconds();
  return world >= 0;
}

Waiting GroupState::waiting() {
  MutexLock lock(&mu_);
  return {.world = active_ ? waiting_world_ : -1,
          .since_s = waiting_since_s_,
          .ping = {.signature = current_, .transfers = transfers_ ? 1u : 0u}};
}

CommError GroupState::ErrorLocked(CommErrorKind kind, int world, std::string reason) {
  CommError error{.kind = kind,
                  .group = info_.name,
                  .rank = info_.rank,
                  .world_rank = self_world(),
                  .culprit = RankOf(world),
                  .culprit_world = world,
                  .reason = std::move(reason)};
  if (active_) {
    error.operation = Name(current_.kind);
    error.sequence = current_.sequence;
    error.bytes = current_.input_bytes;
  }
  return error;
}

CommError GroupState::ErrorAbout(CommErrorKind kind, int world, std::string reason) {
  MutexLock lock(&mu_);
  return ErrorLocked(kind, world, std::move(reason));
}

CommError GroupState::TimeoutError(double timeout_s, double now_s) {
  MutexLock lock(&mu_);
  const Verdict verdict = BlameLocked(now_s);
  std::string reason = StrCat("not over after ", HumanSeconds(timeout_s));
  if (waiting_world_ >= 0) {
    reason +=
        StrCat("; ", RankText(*this, self_world()), " waits for ", RankText(*this, waiting_world_));
    if (verdict.culprit_world != waiting_world_ && verdict.culprit_world >= 0) {
      reason += StrCat(", and ", verdict.hops, verdict.hops == 1 ? " rank" : " ranks",
                       " on the way to ", RankText(*this, verdict.culprit_world), " too");
    }
    reason += StrCat("; ", RankText(*this, verdict.culprit_world), " ", StateText(verdict));
  }
  return ErrorLocked(CommErrorKind::kTimeout, verdict.culprit_world, std::move(reason));
}

std::vector<Accepted> GroupState::TakeAccepted() {
  MutexLock lock(&mu_);
  return std::exchange(accepted_, {});
}

void GroupState::DrainWake() {
  eventfd_t value = 0;
  eventfd_read(wake_.get(), &value);  // non-blocking; nothing there is fine
}

void GroupState::Wake() { eventfd_write(wake_.get(), 1); }

void GroupState::Deliver(Accepted accepted) {
  {
    MutexLock lock(&mu_);
    accepted_.push_back(std::move(accepted));
  }
  Wake();
}

const Signature* GroupState::FindLocked(uint64_t sequence, uint16_t phase) const {
  const size_t kept = std::min(num_begun_, kHistory);
  for (size_t i = 0; i < kept; ++i) {
    const Signature& one = history_[(num_begun_ - 1 - i) % kHistory];
    if (one.sequence == sequence && one.phase == phase) return &one;
  }
  return nullptr;
}

Pong GroupState::Answer(int from_world, const Ping& ping, double now_s,
                        std::optional<CommError>* mismatch) {
  MutexLock lock(&mu_);
  askers_[from_world] = now_s;
  Pong pong{.signature = current_};
  const int from = RankOf(from_world);
  const Signature* same = ping.transfers != 0 || from < 0
                              ? nullptr
                              : FindLocked(ping.signature.sequence, ping.signature.phase);
  if (same != nullptr && !cria::comm::Agree(*same, ping.signature)) {
    pong.disagrees = 1;
    pong.signature = *same;
    *mismatch = MismatchError(info_, *same, from, ping.signature);
    return pong;
  }
  const bool both_collective = ping.transfers == 0 && !transfers_;
  if (!active_) {
    pong.state = both_collective && num_begun_ > 0 && !Before(current_, ping.signature)
                     ? PeerState::kFinished
                     : PeerState::kAbsent;
  } else if (both_collective && Before(ping.signature, current_)) {
    pong.state = PeerState::kFinished;
  } else if (both_collective && Before(current_, ping.signature)) {
    pong.state = PeerState::kAbsent;
  }
  if (active_ && waiting_world_ >= 0 && waiting_world_ != from_world) {
    pong.waits = 1;
    pong.verdict = BlameLocked(now_s);
  }
  return pong;
}

std::optional<CommError> GroupState::Heard(int from_world, const Pong& pong, double now_s) {
  MutexLock lock(&mu_);
  const int from = RankOf(from_world);
  if (!active_ || from < 0) return std::nullopt;
  reports_[from_world] = {.time_s = now_s, .pong = pong};
  if (pong.disagrees != 0 && !transfers_ && SamePlace(pong.signature, current_) &&
      !cria::comm::Agree(pong.signature, current_)) {
    return MismatchError(info_, current_, from, pong.signature);
  }
  if (pong.state == PeerState::kClosed && waiting_world_ == from_world) {
    return ErrorLocked(CommErrorKind::kPeerLost, from_world,
                       StrCat("rank ", from, " has closed the group"));
  }
  return std::nullopt;
}

Verdict GroupState::BlameLocked(double now_s) {
  Verdict verdict;
  if (!active_ || waiting_world_ < 0) return verdict;
  const auto found = reports_.find(waiting_world_);
  const double heard_s = found == reports_.end() ? waiting_since_s_ : found->second.time_s;
  const double limit_s = std::min(kSilentSeconds, timeout_s_ / 3);
  verdict.culprit_world = waiting_world_;
  if (found == reports_.end() || now_s - heard_s > limit_s) {
    verdict.state = PeerState::kSilent;
    verdict.silent_ms = static_cast<uint32_t>(std::clamp((now_s - heard_s) * 1e3, 0.0, 4e9));
    return verdict;
  }
  const Pong& pong = found->second.pong;
  const bool known = pong.verdict.culprit_world != self_world() &&
                     RankOf(pong.verdict.culprit_world) >= 0 &&
                     pong.verdict.hops < static_cast<uint32_t>(info_.size());
  if (pong.waits != 0 && known) {
    verdict = pong.verdict;
    ++verdict.hops;
    return verdict;
  }
  verdict.state = pong.state;
  verdict.sequence = pong.signature.sequence;
  return verdict;
}

Verdict GroupState::Blame(double now_s) {
  MutexLock lock(&mu_);
  return BlameLocked(now_s);
}

std::vector<int> GroupState::AskersToTell(double now_s) {
  MutexLock lock(&mu_);
  const Verdict verdict = BlameLocked(now_s);
  std::vector<int> askers;
  if (verdict.culprit_world == told_.culprit_world && verdict.state == told_.state) return askers;
  told_ = verdict;
  if (!active_) return askers;
  for (const auto& [world, time_s] : askers_) {
    if (now_s - time_s < kAskerSeconds) askers.push_back(world);
  }
  return askers;
}

Poison GroupState::ToPoison(const Status& status) {
  Poison poison;
  PoisonFixed& fixed = poison.fixed;
  fixed.status_code = static_cast<int32_t>(status.raw_code());
  fixed.from_world = self_world();
  {
    MutexLock lock(&mu_);
    fixed.has_signature = active_ && !transfers_ ? 1 : 0;
    fixed.signature = current_;
  }
  const std::optional<CommError> error = GetCommError(status);
  if (!error.has_value()) {
    poison.reason = Message(status);
    return poison;
  }
  fixed.has_comm_error = 1;
  fixed.kind = error->kind;
  fixed.culprit_world = error->culprit_world;
  fixed.sequence = error->sequence;
  fixed.bytes = error->bytes;
  fixed.culprit_bytes = error->culprit_bytes;
  poison.operation = error->operation;
  poison.reason = error->reason;
  return poison;
}

Status GroupState::FromPoison(const Poison& poison) {
  const PoisonFixed& fixed = poison.fixed;
  if (fixed.has_comm_error == 0) {
    return Status(static_cast<StatusCode>(fixed.status_code), poison.reason);
  }
  MutexLock lock(&mu_);
  const int from = RankOf(fixed.from_world);
  if (fixed.kind == CommErrorKind::kMismatch && fixed.has_signature != 0 && from >= 0 &&
      fixed.culprit_world == self_world()) {
    // Two sides of one mismatch: this one tells it with its own values.
    const Signature* own = FindLocked(fixed.signature.sequence, fixed.signature.phase);
    if (own == nullptr && active_ && !transfers_) own = &current_;
    if (own != nullptr && !cria::comm::Agree(*own, fixed.signature)) {
      return ToStatus(MismatchError(info_, *own, from, fixed.signature));
    }
  }
  if (fixed.kind == CommErrorKind::kMismatch && fixed.has_signature == 0 && from >= 0 &&
      fixed.culprit_world == self_world()) {
    CommError error = ErrorLocked(fixed.kind, fixed.from_world,
                                  StrCat("rank ", from, " expects a message of ", fixed.bytes,
                                         " bytes, this rank sent ", fixed.culprit_bytes));
    error.bytes = fixed.culprit_bytes;
    error.culprit_bytes = fixed.bytes;
    return ToStatus(error);
  }
  std::string reason = poison.reason;
  if (fixed.kind == CommErrorKind::kMismatch && from >= 0 && reason.rfind("told by ", 0) != 0) {
    reason = StrCat("told by rank ", from, ": ", reason);  // whose "this rank" it is
  }
  CommError error = ErrorLocked(fixed.kind, fixed.culprit_world, std::move(reason));
  error.operation = poison.operation;
  error.sequence = fixed.sequence;
  if (!active_ || current_.sequence != fixed.sequence) error.bytes = fixed.bytes;
  error.culprit_bytes = fixed.culprit_bytes;
  return ToStatus(error);
}

}  // namespace cria::comm::tcp
