#include "comm/bench/init/store_rank.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "comm/net/address.h"
#include "comm/net/socket.h"

namespace cria::comm {
namespace {

constexpr int kBacklog = 1024;
constexpr int kConnectsAtOnce = 16;
constexpr uint32_t kGroupKeys = 1U << 24;  // above all ranks'
constexpr int kHosts = 64;                 // addresses of 127.2.0.x, so that ports do not run short

std::string AddressOf(int rank) { return StrCat("127.2.0.", 1 + rank % kHosts); }

}  // namespace

// The connection to the store: one request, one reply.
class StoreRank::StoreLink : public EventHandler {
 public:
  StoreLink(StoreRank* rank, Fd fd) : rank_(rank), fd_(std::move(fd)) {}
  ~StoreLink() override { rank_->loop_->Unwatch(watch_, fd_.get()); }

  Status Open(const StoreRequest& first) {
    first_ = first;
    CRIA_ASSIGN_OR_RETURN(watch_, rank_->loop_->Watch(fd_.get(), EPOLLOUT, this));
    return OkStatus();
  }
  Status Ask(const StoreRequest& request) {
    ++rank_->counters_.messages;
    rank_->counters_.bytes += sizeof(request);
    if (send(fd_.get(), &request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT) !=
        static_cast<ssize_t>(sizeof(request))) {
      return SocketError(errno, "ask the store");
    }
    return OkStatus();
  }
  void OnEvents(uint32_t events) override {
    const Status status = (events & EPOLLOUT) != 0 ? Connected() : Read();
    if (!status.ok()) rank_->job_->board->Fail(status);
  }

 private:
  Status Connected() {
    CRIA_RETURN_IF_ERROR(ConnectResult(fd_.get(), rank_->job_->master));
    rank_->loop_->Change(watch_, fd_.get(), EPOLLIN);
    return Ask(first_);
  }
  Status Read() {
    uint64_t value = 0;
    const ssize_t got = recv(fd_.get(), &value, sizeof(value), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return OkStatus();
    if (rank_->phase_ == Phase::kDone) {  // the run is over, the store's process ends
      rank_->loop_->Unwatch(watch_, fd_.get());
      watch_ = {};
      return OkStatus();
    }
    if (got != static_cast<ssize_t>(sizeof(value))) return UnavailableError("the store hung up");
    return rank_->OnReply(value);
  }

  StoreRank* const rank_;
  Fd fd_;
  EventLoop::WatchId watch_;
  StoreRequest first_;
};

// A connection of the mesh: the one who connects sends a byte, the other answers with one.
class StoreRank::MeshLink : public EventHandler {
 public:
  MeshLink(StoreRank* rank, Fd fd, bool incoming)
      : rank_(rank), fd_(std::move(fd)), incoming_(incoming) {}
  ~MeshLink() override { rank_->loop_->Unwatch(watch_, fd_.get()); }

  Status Open() {
    const uint32_t events = incoming_ ? uint32_t{EPOLLIN} : uint32_t{EPOLLOUT};
    CRIA_ASSIGN_OR_RETURN(watch_, rank_->loop_->Watch(fd_.get(), events, this));
    return OkStatus();
  }
  void OnEvents(uint32_t events) override {
    if (const Status status = Step(events); !status.ok()) rank_->job_->board->Fail(status);
  }

 private:
  Status Step(uint32_t events) {
    if (!incoming_ && (events & EPOLLOUT) != 0) {
      rank_->loop_->Change(watch_, fd_.get(), EPOLLIN);
      return SendByte();
    }
    char byte = 0;
    const ssize_t got = recv(fd_.get(), &byte, 1, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return OkStatus();
    if (got <= 0) return UnavailableError("a rank of the mesh hung up");
    rank_->loop_->Unwatch(watch_, fd_.get());
    watch_ = {};
    if (incoming_) CRIA_RETURN_IF_ERROR(SendByte());
    if (!incoming_) --rank_->num_opening_;
    rank_->OnMeshLink();
    return OkStatus();
  }
  Status SendByte() {
    ++rank_->counters_.messages;
    ++rank_->counters_.bytes;
    if (send(fd_.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
      return SocketError(errno, "greet a rank of the mesh");
    }
    return OkStatus();
  }

  StoreRank* const rank_;
  Fd fd_;
  const bool incoming_;
  EventLoop::WatchId watch_;
};

class StoreRank::Listener : public EventHandler {
 public:
  Listener(StoreRank* rank, Fd fd) : rank_(rank), fd_(std::move(fd)) {}
  ~Listener() override { rank_->loop_->Unwatch(watch_, fd_.get()); }
  int fd() const { return fd_.get(); }
  Status Watch() {
    CRIA_ASSIGN_OR_RETURN(watch_, rank_->loop_->Watch(fd_.get(), EPOLLIN, this));
    return OkStatus();
  }
  void OnEvents(uint32_t) override {
    if (const Status status = rank_->TakeLinks(); !status.ok()) rank_->job_->board->Fail(status);
  }

 private:
  StoreRank* const rank_;
  Fd fd_;
  EventLoop::WatchId watch_;
};

StoreRank::StoreRank(EventLoop* loop, const VirtualJob* job, int rank)
    : loop_(loop), job_(job), rank_(rank), next_peer_(rank + 1) {}

StoreRank::~StoreRank() = default;

void StoreRank::Start() {
  if (const Status status = Open(); !status.ok()) {
    job_->board->Fail(Annotate(status, StrCat("rank ", rank_)));
  }
}

Status StoreRank::Open() {
  CRIA_ASSIGN_OR_RETURN(const SocketAddress any_port, ParseAddress(AddressOf(rank_), 0));
  CRIA_ASSIGN_OR_RETURN(Fd fd, Listen(any_port, kBacklog));
  CRIA_ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(fd.get()));
  listener_ = std::make_unique<Listener>(this, std::move(fd));
  CRIA_RETURN_IF_ERROR(listener_->Watch());
  CRIA_ASSIGN_OR_RETURN(Fd store, StartConnect(job_->master));
  ++counters_.connections;
  store_ = std::make_unique<StoreLink>(this, std::move(store));
  return store_->Open({.op = StoreOp::kSet,
                       .key = static_cast<uint32_t>(rank_),
                       .value = static_cast<uint64_t>(bound.port())});
}

Status StoreRank::Ask(StoreOp op, uint32_t key, uint64_t value) {
  return store_->Ask({.op = op, .key = key, .value = value});
}

Status StoreRank::OnReply(uint64_t value) {
  ++rounds_;
  switch (phase_) {
    case Phase::kPublish:
      phase_ = Phase::kRead;
      step_ = 0;
      return Ask(StoreOp::kGet, 0, 0);
    case Phase::kRead:
      address_of_rank_.push_back(value);
      if (++step_ < job_->num_ranks) return Ask(StoreOp::kGet, static_cast<uint32_t>(step_), 0);
      job_->board->num_with_map.fetch_add(1, std::memory_order_acq_rel);
      phase_ = Phase::kMesh;
      return NextStep();
    case Phase::kJoinGroup:
      phase_ = Phase::kWaitForGroup;
      return Ask(StoreOp::kWait, kGroupKeys + static_cast<uint32_t>(step_),
                 static_cast<uint64_t>(job_->num_ranks));
    case Phase::kWaitForGroup:
      ++step_;
      return NextStep();
    default:
      return InternalError("the store replied to nothing");
  }
}

Status StoreRank::NextStep() {
  if (phase_ == Phase::kMesh) {
    if (num_linked_ < job_->num_ranks - 1) return ConnectMore();
    phase_ = Phase::kWaitForGroup;
    step_ = 0;
    ++rounds_;
  }
  if (step_ < job_->num_groups) {
    phase_ = Phase::kJoinGroup;
    return Ask(StoreOp::kAdd, kGroupKeys + static_cast<uint32_t>(step_), 0);
  }
  phase_ = Phase::kDone;
  job_->board->num_done.fetch_add(1, std::memory_order_acq_rel);
  return OkStatus();
}

Status StoreRank::ConnectMore() {
  for (; next_peer_ < job_->num_ranks && num_opening_ < kConnectsAtOnce; ++next_peer_) {
    const auto port = static_cast<int>(address_of_rank_[static_cast<size_t>(next_peer_)]);
    CRIA_ASSIGN_OR_RETURN(const SocketAddress address, ParseAddress(AddressOf(next_peer_), port));
    CRIA_ASSIGN_OR_RETURN(Fd fd, StartConnect(address));
    ++counters_.connections;
    ++num_opening_;
    links_.push_back(std::make_unique<MeshLink>(this, std::move(fd), /*incoming=*/false));
    CRIA_RETURN_IF_ERROR(links_.back()->Open());
  }
  return OkStatus();
}

Status StoreRank::TakeLinks() {
  for (;;) {
    CRIA_ASSIGN_OR_RETURN(Fd fd, TryAccept(listener_->fd()));
    if (!fd.valid()) return OkStatus();
    links_.push_back(std::make_unique<MeshLink>(this, std::move(fd), /*incoming=*/true));
    CRIA_RETURN_IF_ERROR(links_.back()->Open());
  }
}

void StoreRank::OnMeshLink() {
  ++num_linked_;
  if (phase_ != Phase::kMesh) return;
  if (const Status status = NextStep(); !status.ok()) job_->board->Fail(status);
}

}  // namespace cria::comm
