#include "comm/tcp/acceptor.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "comm/net/socket.h"

namespace cria::comm::tcp {
namespace {

constexpr double kHelloSeconds = 30;
constexpr double kDrainSeconds = 2;
constexpr double kAcceptPauseSeconds = 0.05;
// Connections that have not said a whole hello: more and the oldest goes.
constexpr size_t kUnknownMax = 1024;

}  // namespace

void Acceptor::AddPoll(double now_s, std::vector<pollfd>* entries) {
  const short listens = now_s >= accept_again_s_ ? POLLIN : 0;
  listener_entry_ = static_cast<int>(entries->size());
  entries->push_back({.fd = listener_.get(), .events = listens, .revents = 0});
  for (Pending& pending : pending_) {
    pending.entry = static_cast<int>(entries->size());
    // A held peer that goes away is noticed; what it sends meanwhile stays in its socket.
    const short events = pending.phase == Phase::kHeld ? POLLRDHUP : POLLIN;
    entries->push_back({.fd = pending.fd.get(), .events = events, .revents = 0});
  }
}

void Acceptor::Handle(const std::vector<pollfd>& entries, double now_s) {
  const auto events_of = [&entries](int entry) -> int {
    return entry < 0 ? 0 : entries[static_cast<size_t>(entry)].revents;
  };
  if (world_rank_ >= 0) {
    for (Pending& pending : pending_) {
      const int events = events_of(pending.entry);
      const double limit_s = pending.phase == Phase::kHello ? kHelloSeconds : kDrainSeconds;
      if (pending.phase != Phase::kHeld && now_s - pending.since_s > limit_s) {
        pending.phase = Phase::kDead;
      } else if (pending.phase == Phase::kHeld) {
        if ((events & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
          pending.phase = Phase::kDead;
          --num_held_;
        }
      } else if (events != 0) {
        Read(&pending, now_s);
      }
    }
  }
  pending_.remove_if([](const Pending& pending) { return pending.phase == Phase::kDead; });
  if (events_of(listener_entry_) != 0) AcceptAll(now_s);
}

void Acceptor::AcceptAll(double now_s) {
  for (;;) {
    StatusOr<Fd> fd = TryAccept(listener_.get());
    if (!fd.ok()) {
      accept_again_s_ = now_s + kAcceptPauseSeconds;
      hooks_->AcceptFailed(fd.status());
      return;
    }
    if (!fd->valid()) return;
    DropOldestUnknown();
    pending_.push_back({.fd = *std::move(fd), .since_s = now_s});
    if (world_rank_ >= 0) Read(&pending_.back(), now_s);
  }
}

void Acceptor::DropOldestUnknown() {
  if (pending_.size() - static_cast<size_t>(num_held_) < kUnknownMax) return;
  const auto oldest = std::find_if(pending_.begin(), pending_.end(), [](const Pending& pending) {
    return pending.phase != Phase::kHeld;
  });
  if (oldest != pending_.end()) pending_.erase(oldest);
}

void Acceptor::Read(Pending* pending, double now_s) {
  while (pending->phase == Phase::kDraining) {
    std::array<std::byte, 4096> sink;
    const ssize_t got = recv(pending->fd.get(), sink.data(), sink.size(), 0);
    if (got > 0) continue;
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) pending->phase = Phase::kDead;
    return;
  }
  while (pending->in.size() < pending->wanted) {
    // Grows as bytes come, not as the sender says they will.
    constexpr size_t kStep = 64 << 10;
    const size_t have = pending->in.size();
    const size_t step = std::min(kStep, pending->wanted - have);
    pending->in.resize(have + step);
    const ssize_t got = recv(pending->fd.get(), pending->in.data() + have, step, 0);
    const int error_number = errno;
    pending->in.resize(have + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && error_number == EINTR) continue;
    if (got < 0 && error_number == EAGAIN) return;
    if (got <= 0) {
      pending->phase = Phase::kDead;
      return;
    }
    if (pending->in.size() != sizeof(HelloFixed)) continue;
    HelloFixed fixed;
    std::memcpy(&fixed, pending->in.data(), sizeof(fixed));
    const StatusOr<size_t> bytes = HelloBytes(fixed);
    if (!bytes.ok()) {
      LogDebug("a stranger on the port was turned away: ", Message(bytes.status()));
      // A rank of another version is told; who speaks no protocol of ours is not.
      if (fixed.magic == kMagic) {
        Reject(pending, ReplyCode::kRefused, Message(bytes.status()), now_s);
      } else {
        pending->phase = Phase::kDead;
      }
      return;
    }
    pending->wanted = *bytes;
  }
  StatusOr<Hello> hello = ReadHello(pending->in);
  if (!hello.ok()) {
    pending->phase = Phase::kDead;
    return;
  }
  pending->hello = *std::move(hello);
  pending->in = {};
  Decide(pending, now_s);
}

void Acceptor::Reject(Pending* pending, ReplyCode code, const std::string& text, double now_s) {
  Bytes reply;
  AppendReply(code, text, &reply);
  // Fits any socket's empty buffer. Reading on until the end, lest a reset overtakes the reply.
  const ssize_t sent = send(pending->fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
  if (pending->phase == Phase::kHeld) --num_held_;
  pending->phase = sent < 0 ? Phase::kDead : Phase::kDraining;
  pending->since_s = now_s;
  shutdown(pending->fd.get(), SHUT_WR);
}

void Acceptor::Decide(Pending* pending, double now_s) {
  const HelloFixed& hello = pending->hello.fixed;
  if (hello.job != job_) {
    return Reject(pending, ReplyCode::kOtherJob,
                  StrCat("world rank ", world_rank_, " belongs to another job"), now_s);
  }
  if (hello.to_world != world_rank_ || hello.from_world < 0 || hello.from_world >= world_size_) {
    return Reject(pending, ReplyCode::kOtherRank,
                  StrCat("this is world rank ", world_rank_, ", not ", hello.to_world), now_s);
  }
  if (hello.purpose == Purpose::kControl) {
    Bytes reply;
    AppendReply(ReplyCode::kWelcome, "", &reply);
    if (send(pending->fd.get(), reply.data(), reply.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(reply.size())) {
      hooks_->TakeControl(std::move(pending->fd), hello.from_world);
    }
    pending->phase = Phase::kDead;
    return;
  }
  if (const std::shared_ptr<GroupState> group = hooks_->FindGroup(hello.group_id)) {
    if (pending->phase == Phase::kHeld) --num_held_;
    if (group->RankOf(hello.from_world) < 0) {
      pending->phase = Phase::kHello;
      return Reject(pending, ReplyCode::kOtherGroup,
                    StrCat("world rank ", hello.from_world, " is not in the group"), now_s);
    }
    group->Deliver({.fd = std::move(pending->fd), .hello = hello});
    pending->phase = Phase::kDead;
    return;
  }
  if (hooks_->GroupClosed(hello.group_id)) {
    return Reject(pending, ReplyCode::kRefused,
                  StrCat("world rank ", world_rank_, " has closed the group"), now_s);
  }
  if (const std::shared_ptr<GroupState> namesake = hooks_->FindWaitingNamesake(pending->hello)) {
    std::vector<int> theirs(pending->hello.world_ranks.begin(), pending->hello.world_ranks.end());
    const int other = namesake->RankOf(hello.from_world);
    namesake->Fail(ToStatus(namesake->ErrorAbout(
        CommErrorKind::kMismatch, hello.from_world,
        StrCat("rank ", other, " made another group of this name: world ranks ",
               ListDifference(namesake->info().world_ranks, theirs)))));
    return Reject(
        pending, ReplyCode::kOtherGroup,
        StrCat("world rank ", world_rank_, " made another group of this name: world ranks ",
               ListDifference(theirs, namesake->info().world_ranks)),
        now_s);
  }
  if (pending->phase != Phase::kHeld) ++num_held_;
  pending->phase = Phase::kHeld;
}

void Acceptor::Reconsider(double now_s) {
  for (Pending& pending : pending_) {
    if (pending.phase == Phase::kHeld) Decide(&pending, now_s);
  }
  pending_.remove_if([](const Pending& pending) { return pending.phase == Phase::kDead; });
}

bool Acceptor::Holds(uint64_t group_id) const {
  return std::any_of(pending_.begin(), pending_.end(), [group_id](const Pending& pending) {
    return pending.phase == Phase::kHeld && pending.hello.fixed.group_id == group_id;
  });
}

}  // namespace cria::comm::tcp
