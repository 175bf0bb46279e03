#include "comm/bench/init/virtual_rank.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/clock.h"
#include "base/hash.h"
#include "comm/net/socket.h"
#include "comm/rendezvous/map_codec.h"
#include "comm/rendezvous/wire.h"

namespace cria::comm {
namespace {

constexpr int kBacklog = 64;
constexpr uint32_t kMagic = 0x31474943;  // "CIG1"
// The first bytes of a link: magic, from, number of groups; then (group, digest) of each.
constexpr size_t kHelloHeadBytes = 12;
constexpr size_t kHelloGroupBytes = 12;
constexpr size_t kHelloBytesMax = kHelloHeadBytes + kMeshGroupsMax * kHelloGroupBytes;
// The answer: magic, the digests folded into one.
constexpr size_t kAnswerBytes = 12;

// 127.1.0.1 for the first host, and so on: ports do not run short, and each address stands for a
// host as in a cluster.
std::string AddressOfHost(int host) {
  return StrCat("127.", 1 + host / 62500, ".", host / 250 % 250, ".", 1 + host % 250);
}

// As long and as different as a host's identity is (engine/rank_map.h).
std::string HostName(int host) {
  return StrCat("gpu-node-", host, "/", HashHex(StrCat("boot ", host)).substr(0, 16));
}

sockaddr_un UnixAddress(const std::string& name, socklen_t* length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), size);
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return address;
}

StatusOr<Fd> UnixSocket(const std::string& name, bool listens) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SocketError(errno, "socket");
  socklen_t length = 0;
  const sockaddr_un address = UnixAddress(name, &length);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (listens) {
    if (bind(fd.get(), generic, length) != 0 || listen(fd.get(), kBacklog) != 0) {
      return SocketError(errno, StrCat("listen on @", name));
    }
  } else if (connect(fd.get(), generic, length) != 0) {
    return SocketError(errno, StrCat("connect to @", name));
  }
  return fd;
}

uint64_t Fold(uint64_t digests, uint64_t digest) { return digests * 31 + digest; }

}  // namespace

SharedFrame ProcessMap::Share(const FrameHeader& header, std::string_view payload) {
  // The checksum is the payload's digest, and was checked against it.
  if (frame_ == nullptr || checksum_ != header.checksum ||
      frame_->size() != kFrameHeaderBytes + payload.size()) {
    frame_ = MakeFrame(FrameKind::kMap, payload);
    checksum_ = header.checksum;
    map_.clear();
  }
  return frame_;
}

StatusOr<const RankMap*> ProcessMap::Decoded(const SharedFrame& frame) {
  if (frame != frame_) return InternalError("the ranks got different maps");
  if (map_.empty()) {
    const double start_s = RealClock()->MonotonicSeconds();
    CRIA_ASSIGN_OR_RETURN(
        map_, DecodeRankMap(std::string_view(*frame).substr(kFrameHeaderBytes), num_ranks_));
    decode_s_ = RealClock()->MonotonicSeconds() - start_s;
  }
  return &map_;
}

// A connection to a neighbour, until both sides know that they mean the same groups; it stays open.
class VirtualRank::Link : public EventHandler {
 public:
  Link(VirtualRank* rank, Fd fd, bool incoming)
      : rank_(rank), fd_(std::move(fd)), incoming_(incoming) {}
  ~Link() override {
    if (!fd_.valid()) return;
    rank_->loop_->Unwatch(watch_, fd_.get());
    // Thousands of links that close at once leave no TIME_WAIT for the next run.
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }

  // Outgoing: says hello; `answer` is what must come back.
  Status Open(std::string hello, uint64_t answer) {
    hello_ = std::move(hello);
    answer_ = answer;
    CRIA_RETURN_IF_ERROR(SendHello());
    return Watch();
  }
  // Incoming: what was sent is here already, as a rule.
  Status Take() {
    CRIA_RETURN_IF_ERROR(Read());
    return done_ ? OkStatus() : Watch();
  }

  void OnEvents(uint32_t events) override {
    Status status = OkStatus();
    if (!hello_.empty() && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
      status = SendHello();
      if (hello_.empty()) rank_->loop_->Change(watch_, fd_.get(), EPOLLIN);
    }
    if (status.ok() && !done_ && (events & EPOLLIN) != 0) status = Read();
    if (!status.ok())
      rank_->job_->board->Fail(Annotate(status, StrCat("link of rank ", rank_->rank_)));
  }

 private:
  Status Watch() {
    const uint32_t events = EPOLLIN | (hello_.empty() ? 0U : uint32_t{EPOLLOUT});
    CRIA_ASSIGN_OR_RETURN(watch_, rank_->loop_->Watch(fd_.get(), events, this));
    return OkStatus();
  }

  Status SendHello() {
    const ssize_t sent = send(fd_.get(), hello_.data(), hello_.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == ENOTCONN || errno == EINTR)) return OkStatus();
    if (sent < 0) return SocketError(errno, "send hello");
    ++rank_->counters_.messages;
    rank_->counters_.bytes += sent;
    hello_.erase(0, static_cast<size_t>(sent));
    return OkStatus();
  }

  Status Read() {
    std::array<char, kHelloBytesMax> room = {};
    const ssize_t got = recv(fd_.get(), room.data(), room.size() - got_.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return OkStatus();
    if (got < 0) return SocketError(errno, "receive");
    if (got == 0) return UnavailableError("closed by the neighbour");
    got_.append(room.data(), static_cast<size_t>(got));
    return incoming_ ? ReadHello() : ReadAnswer();
  }

  Status ReadHello() {
    if (got_.size() < kHelloHeadBytes) return OkStatus();
    WireReader reader(got_);
    const uint32_t magic = reader.Fixed32();
    const auto from = static_cast<int>(reader.Fixed32());
    const uint32_t count = reader.Fixed32();
    if (magic != kMagic || count > kMeshGroupsMax) return DataLossError("got no hello of a rank");
    if (got_.size() < kHelloHeadBytes + count * kHelloGroupBytes) return OkStatus();
    uint64_t digests = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const auto group = static_cast<int>(reader.Fixed32());
      const uint64_t digest = reader.Fixed64();
      CRIA_RETURN_IF_ERROR(rank_->CheckHello(from, group, digest));
      digests = Fold(digests, digest);
    }
    std::string answer;
    WireWriter writer(&answer);
    writer.Fixed32(kMagic);
    writer.Fixed64(digests);
    CRIA_RETURN_IF_ERROR(SendAnswer(answer));
    return Finish();
  }

  // Twelve bytes on a connection that has sent nothing yet always fit.
  Status SendAnswer(const std::string& answer) {
    const ssize_t sent = send(fd_.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(answer.size())) return SocketError(errno, "send answer");
    ++rank_->counters_.messages;
    rank_->counters_.bytes += sent;
    return OkStatus();
  }

  Status ReadAnswer() {
    if (got_.size() < kAnswerBytes) return OkStatus();
    WireReader reader(got_);
    if (reader.Fixed32() != kMagic || reader.Fixed64() != answer_) {
      return InvalidArgumentError("the neighbour has other groups");
    }
    return Finish();
  }

  Status Finish() {
    done_ = true;
    got_.clear();
    rank_->CountDown();
    return OkStatus();
  }

  VirtualRank* const rank_;
  Fd fd_;
  const bool incoming_;
  EventLoop::WatchId watch_;
  std::string hello_;
  uint64_t answer_ = 0;
  std::string got_;
  bool done_ = false;
};

class VirtualRank::Listener : public EventHandler {
 public:
  Listener(VirtualRank* rank, Fd fd) : rank_(rank), fd_(std::move(fd)) {}
  ~Listener() override { rank_->loop_->Unwatch(watch_, fd_.get()); }

  int fd() const { return fd_.get(); }
  // From now on connections are taken.
  Status Watch() {
    CRIA_ASSIGN_OR_RETURN(watch_, rank_->loop_->Watch(fd_.get(), EPOLLIN, this));
    return OkStatus();
  }
  void OnEvents(uint32_t) override {
    if (const Status status = rank_->TakeLinks(fd_.get()); !status.ok())
      rank_->job_->board->Fail(status);
  }

 private:
  VirtualRank* const rank_;
  Fd fd_;
  EventLoop::WatchId watch_;
};

VirtualRank::VirtualRank(EventLoop* loop, const VirtualJob* job, ProcessMap* process_map, int rank)
    : loop_(loop), job_(job), process_map_(process_map), rank_(rank) {}

VirtualRank::~VirtualRank() = default;

WireCounters VirtualRank::counters() const {
  const WireCounters& map = client_->counters();
  return {.connections = counters_.connections + map.connections,
          .messages = counters_.messages + map.messages,
          .bytes = counters_.bytes + map.bytes};
}

void VirtualRank::Start() {
  if (const Status status = Open(); !status.ok()) {
    return job_->board->Fail(Annotate(status, StrCat("rank ", rank_)));
  }
  client_->Start();
}

Status VirtualRank::Open() {
  const std::string address = AddressOfHost(HostOf(rank_));
  CRIA_ASSIGN_OR_RETURN(const SocketAddress any_port, ParseAddress(address, 0));
  CRIA_ASSIGN_OR_RETURN(Fd tcp, Listen(any_port, kBacklog));
  CRIA_ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(tcp.get()));
  tcp_ = std::make_unique<Listener>(this, std::move(tcp));
  const std::string random = HashHex(StrCat(job_->run_name, rank_)).substr(0, 8);
  // As a process of its own would have it.
  const int pid = 4000 + HostOf(rank_) * 7919 % 20000 + rank_ % job_->ranks_per_host * 3;
  info_ = {.host = HostName(HostOf(rank_)),
           .address = address,
           .port = bound.port(),
           .shm_socket = StrCat("cria-", pid, "-", random),
           .pid = pid};
  if (job_->ranks_per_host > 1) {
    CRIA_ASSIGN_OR_RETURN(Fd fd, UnixSocket(info_.shm_socket, /*listens=*/true));
    unix_ = std::make_unique<Listener>(this, std::move(fd));
  }
  client_ = std::make_unique<RendezvousClient>(
      loop_, RendezvousClientConfig{.master = job_->master,
                                    .environment = {.rank = rank_,
                                                    .world_size = job_->num_ranks,
                                                    .local_rank = rank_ % job_->ranks_per_host,
                                                    .local_size = job_->ranks_per_host,
                                                    .master_address = job_->master.host(),
                                                    .master_port = job_->master.port(),
                                                    .source = "none",
                                                    .job = job_->run_name},
                                    .record = info_,
                                    .timeout_s = job_->timeout_s,
                                    .pool = process_map_,
                                    .on_done = [this] { OnMap(); }});
  return OkStatus();
}

void VirtualRank::OnMap() {
  Status status = client_->status();
  if (status.ok()) {
    job_->board->num_with_map.fetch_add(1, std::memory_order_acq_rel);
    const auto map = process_map_->Decoded(client_->map_frame());
    status = map.ok() ? OpenGroups(**map) : map.status();
  }
  if (!status.ok()) job_->board->Fail(Annotate(status, StrCat("rank ", rank_)));
}

Status VirtualRank::OpenGroups(const RankMap& map) {
  groups_ = GroupsOf(job_->mesh, rank_, job_->num_groups);
  // Of each pair on one host one link, of each other pair one a group.
  std::map<int, std::vector<int>> local;
  std::set<int> local_in;
  std::vector<std::pair<int, int>> remote;
  num_open_ = 1;
  for (int g = 0; g < job_->num_groups; ++g) {
    const MeshGroup& group = groups_[static_cast<size_t>(g)];
    const auto size = static_cast<int>(group.members.size());
    if (size < 2) continue;
    const int next = group.members[static_cast<size_t>((group.position + 1) % size)];
    const int previous = group.members[static_cast<size_t>((group.position + size - 1) % size)];
    if (HostOf(next) == HostOf(rank_)) {
      local[next].push_back(g);
    } else {
      remote.emplace_back(next, g);
    }
    if (HostOf(previous) != HostOf(rank_) || local_in.insert(previous).second) ++num_open_;
  }
  num_open_ += static_cast<int>(local.size() + remote.size());
  CRIA_RETURN_IF_ERROR(tcp_->Watch());
  if (unix_ != nullptr) CRIA_RETURN_IF_ERROR(unix_->Watch());
  for (auto& [peer, groups] : local) {
    CRIA_RETURN_IF_ERROR(ConnectTo(map, peer, std::move(groups)));
  }
  for (const auto& [peer, group] : remote) CRIA_RETURN_IF_ERROR(ConnectTo(map, peer, {group}));
  // The members are no longer needed, nor is their memory; the ids are.
  for (MeshGroup& group : groups_) {
    const auto size = group.members.size();
    const int previous = group.members[(static_cast<size_t>(group.position) + size - 1) % size];
    group.members = std::vector<int>{previous};
  }
  CountDown();
  return OkStatus();
}

std::string VirtualRank::HelloFor(const std::vector<int>& groups) const {
  std::string hello;
  WireWriter writer(&hello);
  writer.Fixed32(kMagic);
  writer.Fixed32(static_cast<uint32_t>(rank_));
  writer.Fixed32(static_cast<uint32_t>(groups.size()));
  for (const int group : groups) {
    writer.Fixed32(static_cast<uint32_t>(group));
    writer.Fixed64(groups_[static_cast<size_t>(group)].id);
  }
  return hello;
}

Status VirtualRank::ConnectTo(const RankMap& map, int peer, std::vector<int> groups) {
  const RankInfo& info = map[static_cast<size_t>(peer)];
  Fd fd;
  if (HostOf(peer) == HostOf(rank_)) {
    CRIA_ASSIGN_OR_RETURN(fd, UnixSocket(info.shm_socket, /*listens=*/false));
  } else {
    CRIA_ASSIGN_OR_RETURN(const SocketAddress address, ParseAddress(info.address, info.port));
    CRIA_ASSIGN_OR_RETURN(fd, StartConnect(address));
  }
  ++counters_.connections;
  uint64_t digests = 0;
  for (const int group : groups) {
    digests = Fold(digests, groups_[static_cast<size_t>(group)].id);
  }
  links_.push_back(std::make_unique<Link>(this, std::move(fd), /*incoming=*/false));
  return links_.back()->Open(HelloFor(groups), digests);
}

Status VirtualRank::TakeLinks(int listener) {
  for (;;) {
    CRIA_ASSIGN_OR_RETURN(Fd fd, TryAccept(listener));
    if (!fd.valid()) return OkStatus();
    links_.push_back(std::make_unique<Link>(this, std::move(fd), /*incoming=*/true));
    CRIA_RETURN_IF_ERROR(links_.back()->Take());
  }
}

Status VirtualRank::CheckHello(int from, int group, uint64_t digest) {
  if (group < 0 || group >= job_->num_groups) {
    return InvalidArgumentError("rank ", from, " asks for group ", group, " of ", job_->num_groups);
  }
  const MeshGroup& mine = groups_[static_cast<size_t>(group)];
  if (mine.members.front() != from || mine.id != digest) {
    return InvalidArgumentError(
        "group \"", mine.name, "\": rank ", from, " thinks that it comes before rank ", rank_,
        ", which expects rank ", mine.members.front(), " (digests ", digest, " and ", mine.id, ")");
  }
  return OkStatus();
}

void VirtualRank::CountDown() {
  if (--num_open_ == 0) job_->board->num_done.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace cria::comm
