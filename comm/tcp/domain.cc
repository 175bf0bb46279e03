#include "comm/tcp/domain.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "comm/tcp/tcp_transport.h"

namespace cria::comm::tcp {
namespace {

constexpr double kAskEverySeconds = 0.05;
constexpr double kIdleSeconds = 1.0;
constexpr double kFlushSeconds = 0.2;
constexpr double kSpinSeconds = 60e-6;
constexpr size_t kClosedMax = 4096;
constexpr size_t kEarlyPoisonMax = 256;
// Groups up to this size are told by each member that learns; in larger ones the news takes
// log2(n) hops.
constexpr int kTellAllMax = 16;

double Now() { return RealClock()->MonotonicSeconds(); }

uint64_t DigestOf(const RankMap& rank_map) {
  std::string text;
  for (const RankInfo& info : rank_map) {
    text += StrCat(info.host, "\n", info.address, "\n", info.port, "\n", info.pid, "\n");
  }
  return Hash64(text);
}

}  // namespace

StatusOr<std::unique_ptr<Domain>> Domain::Make(const TcpOptions& options) {
  if (options.streams < 1 || options.streams > kStreamsMax) {
    return InvalidArgumentError("tcp streams: ", options.streams, " is outside [1, ", kStreamsMax,
                                "]");
  }
  CRIA_ASSIGN_OR_RETURN(const SocketAddress wanted, ParseAddress(options.address, options.port));
  CRIA_ASSIGN_OR_RETURN(Fd listener, Listen(wanted, options.backlog));
  CRIA_ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(listener.get()));
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return SocketError(errno, "eventfd");
  return std::unique_ptr<Domain>(new Domain(options, std::move(listener), std::move(wake), bound));
}

Domain::Domain(const TcpOptions& options, Fd listener, Fd wake, const SocketAddress& bound)
    : options_(options),
      wake_(std::move(wake)),
      address_(bound.host()),
      port_(bound.port()),
      acceptor_(std::move(listener), this),
      control_(this) {}

Domain::~Domain() {
  stop_.store(true, std::memory_order_release);
  Kick();
  if (thread_.joinable()) thread_.join();
}

void Domain::Start(int world_rank, std::shared_ptr<const RankMap> rank_map) {
  CRIA_CHECK(!thread_.joinable(), "started twice");
  world_rank_ = world_rank;
  rank_map_ = std::move(rank_map);
  job_ = DigestOf(*rank_map_);
  const RankInfo& self = (*rank_map_)[static_cast<size_t>(world_rank)];
  unsigned ranks_here = 0;
  for (const RankInfo& info : *rank_map_) {
    // An address that is none is found out by whoever connects there.
    addresses_.push_back(ParseAddress(info.address, info.port).value_or(SocketAddress{}));
    ranks_here += info.host == self.host ? 1 : 0;
  }
  // More ranks than cores: who spins keeps the others from working.
  spin_s_ = ranks_here <= std::thread::hardware_concurrency() ? kSpinSeconds : 0;
  acceptor_.Start(world_rank, static_cast<int>(rank_map_->size()), job_);
  thread_ = std::thread([this] { ThreadMain(); });
}

StatusOr<std::unique_ptr<Transport>> Domain::OpenGroup(const GroupInfo& group,
                                                       FailureState* failure) {
  CRIA_ASSIGN_OR_RETURN(std::shared_ptr<GroupState> state, GroupState::Create(group, failure));
  std::vector<Poison> early;
  {
    MutexLock lock(&mu_);
    if (!groups_.emplace(group.id, state).second) {
      return InvalidArgumentError("group \"", group.name, "\" is open already");
    }
    for (const auto& [id, poison] : early_poison_) {
      if (id == group.id) early.push_back(poison);
    }
  }
  auto transport = std::make_unique<TcpTransport>(this, state);
  for (const Poison& poison : early) failure->Fail(state->FromPoison(poison));
  Kick();
  return transport;
}

void Domain::Kick() {
  kicked_.store(true, std::memory_order_release);
  eventfd_write(wake_.get(), 1);
}

void Domain::QueuePoison(const std::shared_ptr<GroupState>& group, Poison poison) {
  {
    MutexLock lock(&mu_);
    poison_.emplace_back(group, std::move(poison));
    telling_ = true;
  }
  Kick();
}

void Domain::WaitUntilTold(double seconds) {
  const double end_s = Now() + seconds;
  MutexLock lock(&mu_);
  while (telling_ && Now() < end_s) told_.WaitFor(&mu_, end_s - Now());
}

void Domain::CloseGroup(uint64_t id) {
  MutexLock lock(&mu_);
  groups_.erase(id);
  closed_.push_back(id);
  if (closed_.size() > kClosedMax) closed_.pop_front();
}

LinkConfig Domain::LinkTo(const GroupState& group, int peer) {
  const int world = group.WorldOf(peer);
  const RankInfo& self = (*rank_map_)[static_cast<size_t>(world_rank_)];
  LinkConfig config{.peer = peer,
                    .connects = world_rank_ < world,
                    .same_host = (*rank_map_)[static_cast<size_t>(world)].host == self.host,
                    .address = addresses_[static_cast<size_t>(world)],
                    .num_streams = options_.streams,
                    .num_connections = &num_connections_};
  config.hello.fixed = ControlHello(world);
  config.hello.fixed.group_id = group.info().id;
  config.hello.name = group.info().name;
  config.hello.world_ranks.assign(group.info().world_ranks.begin(), group.info().world_ranks.end());
  return config;
}

std::vector<std::shared_ptr<GroupState>> Domain::Groups() {
  MutexLock lock(&mu_);
  std::vector<std::shared_ptr<GroupState>> groups;
  for (const auto& [id, group] : groups_) groups.push_back(group);
  return groups;
}

std::shared_ptr<GroupState> Domain::FindGroup(uint64_t id) {
  MutexLock lock(&mu_);
  const auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : found->second;
}

std::shared_ptr<GroupState> Domain::FindWaitingNamesake(const Hello& hello) {
  for (const std::shared_ptr<GroupState>& group : Groups()) {
    if (group->info().name == hello.name && group->waiting().world == hello.fixed.from_world) {
      return group;
    }
  }
  return nullptr;
}

bool Domain::GroupClosed(uint64_t id) {
  MutexLock lock(&mu_);
  return std::find(closed_.begin(), closed_.end(), id) != closed_.end();
}

void Domain::TakeControl(Fd fd, int from_world) { control_.Take(std::move(fd), from_world); }

void Domain::AcceptFailed(const Status& status) {
  LogDebug(Message(status));
  for (const std::shared_ptr<GroupState>& group : Groups()) {
    if (group->waiting().world >= 0) group->Fail(status);
  }
}

SocketAddress Domain::AddressOf(int world) { return addresses_[static_cast<size_t>(world)]; }

HelloFixed Domain::ControlHello(int to_world) {
  return {
      .purpose = Purpose::kControl, .job = job_, .from_world = world_rank_, .to_world = to_world};
}

void Domain::OnPing(int from_world, uint64_t group_id, const Ping& ping) {
  const std::shared_ptr<GroupState> group = FindGroup(group_id);
  Pong pong;
  std::optional<CommError> mismatch;
  if (group != nullptr) {
    pong = group->Answer(from_world, ping, Now(), &mismatch);
  } else {
    pong.state = GroupClosed(group_id) ? PeerState::kClosed : PeerState::kNoGroup;
    // Why it was closed comes before that it was.
    SpreadPoison(Now());
  }
  control_.Answer(from_world, group_id, pong, Now());
  if (mismatch.has_value()) group->Fail(ToStatus(*mismatch));
}

void Domain::OnPong(int from_world, uint64_t group_id, const Pong& pong) {
  const std::shared_ptr<GroupState> group = FindGroup(group_id);
  if (group == nullptr) return;
  const std::optional<CommError> error = group->Heard(from_world, pong, Now());
  if (error.has_value()) group->Fail(ToStatus(*error));
  // Those further back hear at once, not at their next question.
  for (const int asker : group->AskersToTell(Now())) {
    std::optional<CommError> mismatch;
    const Ping ping = group->waiting().ping;
    control_.Answer(asker, group_id, group->Answer(asker, ping, Now(), &mismatch), Now());
  }
}

void Domain::OnPoison(int from_world, uint64_t group_id, const Poison& poison) {
  const std::shared_ptr<GroupState> group = FindGroup(group_id);
  if (group != nullptr) {
    if (group->RankOf(from_world) < 0) return;
    group->Fail(group->FromPoison(poison));
    return;
  }
  if (GroupClosed(group_id)) return;
  MutexLock lock(&mu_);
  early_poison_.emplace_back(group_id, poison);
  if (early_poison_.size() > kEarlyPoisonMax) early_poison_.pop_front();
}

void Domain::OnDead(int world, const std::string& why) {
  for (const std::shared_ptr<GroupState>& group : Groups()) {
    if (group->waiting().world != world) continue;
    group->Fail(ToStatus(group->ErrorAbout(
        CommErrorKind::kPeerLost, world,
        StrCat("lost rank ", group->RankOf(world), ": its process is gone (", why, ")"))));
  }
}

void Domain::ThreadMain() {
  while (!stop_.load(std::memory_order_acquire)) OneTurn();
  // The last words of a group that failed just now.
  const double end_s = Now() + kFlushSeconds;
  SpreadPoison(Now());
  while (!control_.drained() && Now() < end_s) {
    entries_.clear();
    control_.AddPoll(&entries_);
    poll(entries_.data(), entries_.size(), 10);
    control_.Handle(entries_, Now());
  }
}

void Domain::OneTurn() {
  double now_s = Now();
  entries_.clear();
  entries_.push_back({.fd = wake_.get(), .events = POLLIN, .revents = 0});
  acceptor_.AddPoll(now_s, &entries_);
  control_.AddPoll(&entries_);
  const double wait_s = anybody_waits_ ? kAskEverySeconds : kIdleSeconds;
  const double wake_s = std::min(now_s + wait_s, control_.retry_s());
  poll(entries_.data(), entries_.size(), PollMilliseconds(wake_s));
  now_s = Now();
  if (entries_[0].revents != 0) {
    eventfd_t value = 0;
    eventfd_read(wake_.get(), &value);
  }
  SpreadPoison(now_s);
  acceptor_.Handle(entries_, now_s);
  control_.Handle(entries_, now_s);
  const bool kicked = kicked_.exchange(false, std::memory_order_acq_rel);
  if (kicked || anybody_waits_) {
    acceptor_.Reconsider(now_s);
    Tick(now_s);
  }
  SpreadPoison(now_s);
  if (!control_.drained()) return;
  MutexLock lock(&mu_);
  if (!telling_ || !poison_.empty()) return;
  telling_ = false;
  told_.NotifyAll();
}

void Domain::Tick(double now_s) {
  anybody_waits_ = false;
  for (const std::shared_ptr<GroupState>& group : Groups()) {
    const Waiting waiting = group->waiting();
    if (waiting.world < 0 || group->failed_or_closed()) continue;
    anybody_waits_ = true;
    double& asked_s = asked_s_[group->info().id];
    if (asked_s >= waiting.since_s && now_s - asked_s < 0.9 * kAskEverySeconds) continue;
    asked_s = now_s;
    control_.Ask(waiting.world, group->info().id, waiting.ping, now_s);
  }
  if (!anybody_waits_) asked_s_.clear();
}

void Domain::SpreadPoison(double now_s) {
  std::vector<std::pair<std::shared_ptr<GroupState>, Poison>> queue;
  {
    MutexLock lock(&mu_);
    queue.swap(poison_);
  }
  for (const auto& [group, poison] : queue) TellPeers(group.get(), poison, now_s);
}

void Domain::TellPeers(GroupState* group, const Poison& poison, double now_s) {
  const int size = group->info().size();
  const int self = group->info().rank;
  const auto tell = [&](int rank) {
    const int world = group->WorldOf(rank);
    // The dead hear nothing.
    const bool dead =
        poison.fixed.kind == CommErrorKind::kPeerLost && poison.fixed.culprit_world == world;
    if (rank != self && !dead) control_.Tell(world, group->info().id, poison, now_s);
  };
  if (size <= kTellAllMax) {
    for (int rank = 0; rank < size; ++rank) tell(rank);
    return;
  }
  // Each that learns tells those at distances of powers of two, both ways: several ways lead to
  // each rank, so that dead ones in between do no harm.
  for (int distance = 1; distance < size; distance *= 2) {
    tell((self + distance) % size);
    tell((self + size - distance) % size);
  }
}

}  // namespace cria::comm::tcp

namespace cria::comm {

StatusOr<std::unique_ptr<TcpDomain>> TcpDomain::Create(const TcpOptions& options) {
  CRIA_ASSIGN_OR_RETURN(std::unique_ptr<tcp::Domain> domain, tcp::Domain::Make(options));
  return std::unique_ptr<TcpDomain>(std::move(domain));
}

}  // namespace cria::comm
