#include "comm/shm/peers.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/str.h"

namespace cria::comm {
namespace {

constexpr int kBacklog = 4096;
constexpr int kEventsMax = 64;
constexpr int kPollMs = 20;  // how often a wait for a peer looks at its caller's conditions
constexpr int kAcceptedMax = 65536;

struct Greeting {
  uint64_t magic = kSegmentMagic;
  int64_t segment_bytes = 0;
};

// What an event of the epoll set is about.
uint64_t TagOf(int fd) { return static_cast<uint64_t>(fd); }
uint64_t TagOf(Peer* peer) { return reinterpret_cast<uint64_t>(peer) | uint64_t{1} << 63; }
Peer* PeerOf(uint64_t tag) {
  return tag >> 63 != 0 ? reinterpret_cast<Peer*>(tag & ~(uint64_t{1} << 63)) : nullptr;
}

bool AddToEpoll(int epoll, int fd, uint64_t tag) {
  epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data = {.u64 = tag}};
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// Abstract: a zero byte, then the name.
std::pair<sockaddr_un, socklen_t> AddressOf(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), size);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size)};
}

// Who is at the other end, by the kernel's word.
ucred CredentialsOf(int connection) {
  ucred credentials = {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t size = sizeof(credentials);
  getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  return credentials;
}

void CloseIfOpen(int fd) {
  if (fd >= 0) close(fd);
}

// Sends the greeting and a descriptor. The receiver's buffer is empty, so this does not block.
bool SendGreeting(int connection, const Greeting& greeting, int fd) {
  iovec data = {.iov_base = const_cast<Greeting*>(&greeting), .iov_len = sizeof(greeting)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  ssize_t sent;
  do {
    sent = sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof(greeting));
}

// The greeting and the descriptor with it; -1 without one. Returns bytes received, -1 on error.
ssize_t ReceiveGreeting(int connection, Greeting* greeting, int* fd) {
  iovec data = {.iov_base = greeting, .iov_len = sizeof(*greeting)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t received;
  do {
    received = recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (received < 0 && errno == EINTR);
  *fd = -1;
  if (received <= 0) return received;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= h->cmsg_len; ++i) {
      int got = -1;
      std::memcpy(&got, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
      CloseIfOpen(*fd);
      *fd = got;
    }
  }
  return received;
}

}  // namespace

Peers::Peers(Segment* segment) : segment_(segment) {}

Peers::~Peers() {
  if (segment_->InChild()) {
    // The thread is the parent's, and so is what the descriptors lead to.
    static_cast<void>(thread_.release());
  } else if (thread_ != nullptr) {
    const uint64_t one = 1;
    CRIA_CHECK(write(stop_, &one, sizeof(one)) == sizeof(one), "wake the monitor: errno ", errno);
    thread_->join();
  }
  for (const int fd : accepted_) close(fd);
  MutexLock lock(&mu_);
  for (const auto& [rank, peer] : peers_) {
    CloseIfOpen(peer->connection);
    CloseIfOpen(peer->process);
  }
  for (const int fd : {listener_, epoll_, stop_}) CloseIfOpen(fd);
}

Status Peers::Listen() {
  // Every rank gets every rank's name: short enough, and no two are the same all the same.
  uint32_t random = 0;
  if (getrandom(&random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) {
    return ErrnoError(errno, "getrandom for the name of a socket");
  }
  std::array<char, 64> name = {};
  std::snprintf(name.data(), name.size(), "cria-%d-%08x", getpid(), random);
  socket_name_ = name.data();
  listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  stop_ = eventfd(0, EFD_CLOEXEC);
  if (listener_ < 0 || epoll_ < 0 || stop_ < 0) {
    return ResourceExhaustedError("shared memory: a socket, an epoll set and an eventfd: ",
                                  std::strerror(errno));
  }
  const auto [address, size] = AddressOf(socket_name_);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(listener_, kBacklog) != 0) {
    return ErrnoError(errno, StrCat("listen on the abstract unix socket ", socket_name_));
  }
  if (!AddToEpoll(epoll_, listener_, TagOf(listener_)) ||
      !AddToEpoll(epoll_, stop_, TagOf(stop_))) {
    return ErrnoError(errno, "shared memory: watch sockets");
  }
  thread_ = std::make_unique<std::thread>([this] { RunThread(); });
  return OkStatus();
}

void Peers::Start(int world_rank, std::shared_ptr<const RankMap> rank_map) {
  world_rank_ = world_rank;
  rank_map_ = std::move(rank_map);
  auto self = std::make_unique<Peer>();
  self->mapping = &segment_->mapping();
  self->pid = getpid();
  MutexLock lock(&mu_);
  peers_[world_rank] = std::move(self);
}

Peer* Peers::Find(int world_rank) const {
  MutexLock lock(&mu_);
  const auto it = peers_.find(world_rank);
  return it == peers_.end() ? nullptr : it->second.get();
}

StatusOr<Peer*> Peers::Meet(int world_rank, const std::function<Status()>& keep_waiting) {
  if (Peer* peer = Find(world_rank)) return peer;
  CRIA_ASSIGN_OR_RETURN(std::unique_ptr<Peer> made, Connect(world_rank, keep_waiting));
  Peer* peer = nullptr;
  {
    MutexLock lock(&mu_);
    // Another group of this process may have met it meanwhile: one mapping is enough.
    const auto [it, is_new] = peers_.try_emplace(world_rank, std::move(made));
    peer = it->second.get();
    if (is_new) WatchPeer(peer);
  }
  if (made != nullptr) {
    CloseIfOpen(made->connection);
    CloseIfOpen(made->process);
  }
  return peer;
}

void Peers::WatchPeer(Peer* peer) {
  // An fd that cannot be watched says nothing; the other one, or the deadline, will.
  AddToEpoll(epoll_, peer->connection, TagOf(peer));
  if (peer->process >= 0) AddToEpoll(epoll_, peer->process, TagOf(peer));
}

StatusOr<std::unique_ptr<Peer>> Peers::Connect(int world_rank,
                                               const std::function<Status()>& keep_waiting) {
  const std::string& name = (*rank_map_)[static_cast<size_t>(world_rank)].shm_socket;
  auto peer = std::make_unique<Peer>();
  peer->connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (peer->connection < 0) {
    return ResourceExhaustedError("shared memory: a socket to world rank ", world_rank, ": ",
                                  std::strerror(errno));
  }
  const auto [address, size] = AddressOf(name);
  Status status;
  while (connect(peer->connection, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    if (errno == EAGAIN) {  // its queue is full
      poll(nullptr, 0, 1);
      status = keep_waiting();
    } else if (errno != EINTR) {
      status = UnavailableError("connect to the socket of world rank ", world_rank, ", ", name,
                                ": ", std::strerror(errno));
    }
    if (!status.ok()) break;
  }
  if (status.ok()) status = Greet(peer.get(), world_rank, keep_waiting);
  if (!status.ok()) {
    CloseIfOpen(peer->connection);
    CloseIfOpen(peer->process);
    return status;
  }
  return peer;
}

// Receives the segment.
Status Peers::Greet(Peer* peer, int world_rank, const std::function<Status()>& keep_waiting) {
  const ucred credentials = CredentialsOf(peer->connection);
  if (credentials.uid != geteuid()) {
    return UnavailableError("the socket of world rank ", world_rank, " belongs to user ",
                            credentials.uid, ", not to this one, ", geteuid());
  }
  peer->pid = credentials.pid;
  if (peer->pid > 0) {
    peer->process = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(peer->pid), 0u));
  }
  pollfd wait = {.fd = peer->connection, .events = POLLIN, .revents = 0};
  while (poll(&wait, 1, kPollMs) <= 0) CRIA_RETURN_IF_ERROR(keep_waiting());
  Greeting greeting;
  int fd = -1;
  const ssize_t received = ReceiveGreeting(peer->connection, &greeting, &fd);
  if (received != static_cast<ssize_t>(sizeof(greeting)) || fd < 0) {
    CloseIfOpen(fd);
    return UnavailableError("world rank ", world_rank,
                            " closed its connection without handing over its shared memory");
  }
  struct stat info = {};
  const bool sound = fstat(fd, &info) == 0 && greeting.magic == kSegmentMagic &&
                     greeting.segment_bytes == info.st_size && info.st_size > kHeapOffset;
  StatusOr<Mapping> mapping =
      sound ? Mapping::Map(fd, info.st_size)
            : StatusOr<Mapping>(InternalError("world rank ", world_rank, " handed over a file of ",
                                              info.st_size, " bytes that is no segment"));
  close(fd);
  CRIA_RETURN_IF_ERROR(mapping.status());
  peer->own_mapping = *std::move(mapping);
  peer->mapping = &peer->own_mapping;
  return OkStatus();
}

void Peers::RunThread() {
  while (true) {
    std::array<epoll_event, kEventsMax> events;
    const int n = epoll_wait(epoll_, events.data(), kEventsMax, 1000);
    for (int i = 0; i < n; ++i) {
      const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
      if (Peer* peer = PeerOf(tag)) {
        // Nothing is ever said on it after the greeting: this is its end.
        peer->dead.store(true, std::memory_order_release);
        epoll_ctl(epoll_, EPOLL_CTL_DEL, peer->connection, nullptr);
        if (peer->process >= 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, peer->process, nullptr);
        continue;
      }
      const int fd = static_cast<int>(tag);
      if (fd == stop_) return;
      if (fd == listener_) {
        Accept();
      } else {
        close(fd);  // a peer that was served says nothing more: it is gone
        accepted_.erase(fd);
      }
    }
  }
}

void Peers::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    // Out of descriptors: those who wait are served when some are free again.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) poll(nullptr, 0, kPollMs);
    return;
  }
  const Greeting greeting = {.segment_bytes = segment_->mapping().bytes()};
  if (accepted_.size() >= kAcceptedMax || CredentialsOf(fd).uid != geteuid() ||
      !AddToEpoll(epoll_, fd, TagOf(fd)) || !SendGreeting(fd, greeting, segment_->fd())) {
    close(fd);
    return;
  }
  accepted_.insert(fd);
}

}  // namespace cria::comm
