#include "comm/net/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "absl/strings/cord.h"
#include "base/clock.h"

namespace cria::comm {
namespace {

constexpr char kErrnoUrl[] = "cria.dev/socket-errno";

// One try to connect waits this long at first, then longer: a SYN that a full backlog dropped is
// sent anew sooner than the kernel would.
constexpr double kFirstTrySeconds = 0.5;
constexpr double kTrySecondsMax = 4;
constexpr int kPollMillisecondsMax = 60'000;

double Now() { return RealClock()->MonotonicSeconds(); }

bool IsOurAccepted(int error_number) {
  // What accept(2) reports of a connection that is gone again: not an error of the listener.
  switch (error_number) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENOPROTOOPT:
    case ENONET:
    case EOPNOTSUPP:
      return true;
    default:
      return false;
  }
}

void SetOption(int fd, int level, int option, int value) {
  // Best effort: an option that this kernel lacks costs speed, not correctness.
  setsockopt(fd, level, option, &value, sizeof(value));
}

StatusOr<Fd> NewSocket(int family) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SocketError(errno, "socket");
  return fd;
}

Status Translate(int error_number, const std::string& what) {
  switch (error_number) {
    case EMFILE: {
      rlimit limit = {};
      getrlimit(RLIMIT_NOFILE, &limit);
      return ResourceExhaustedError(what, ": this process has all its ", limit.rlim_cur,
                                    " file descriptors open (ulimit -n)");
    }
    case ENFILE:
      return ResourceExhaustedError(
          what, ": the system has all its file descriptors open (/proc/sys/fs/file-max)");
    case ENOBUFS:
      return ResourceExhaustedError(what, ": the kernel has no memory for sockets");
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENETRESET:
    case ETIMEDOUT:
    case EADDRINUSE:
    case EADDRNOTAVAIL:
      return Status(StatusCode::kUnavailable, Message(ErrnoError(error_number, what)));
    default:
      return ErrnoError(error_number, what);
  }
}

void SleepUntil(double time_s) {
  const double left_s = time_s - Now();
  if (left_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left_s));
}

}  // namespace

Status SocketError(int error_number, const std::string& what) {
  Status status = Translate(error_number, what);
  status.SetPayload(kErrnoUrl, absl::Cord(StrCat(error_number)));
  return status;
}

int SocketErrno(const Status& status) {
  const auto payload = status.GetPayload(kErrnoUrl);
  return payload ? std::atoi(std::string(*payload).c_str()) : 0;
}

Backoff::Backoff(uint64_t seed, double first_s, double max_s)
    : rng_(seed, StreamOf("comm/net backoff")), max_s_(max_s), delay_s_(first_s) {}

double Backoff::Next() {
  const double delay_s = delay_s_ * (0.5 + rng_.Uniform(num_draws_++));
  delay_s_ = std::min(2 * delay_s_, max_s_);
  return delay_s;
}

uint64_t BackoffSeed() {
  static std::atomic<uint64_t> calls{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return static_cast<uint64_t>(now) ^ (static_cast<uint64_t>(getpid()) << 40) ^
         (calls.fetch_add(1, std::memory_order_relaxed) << 20);
}

StatusOr<Fd> Listen(const SocketAddress& address, int backlog) {
  CRIA_ASSIGN_OR_RETURN(Fd fd, NewSocket(address.family()));
  SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // Connections that it accepts inherit this: a call less for each of thousands.
  SetNoDelay(fd.get());
  if (bind(fd.get(), address.get(), address.length) != 0) {
    return SocketError(errno, StrCat("bind to ", address.ToString()));
  }
  if (listen(fd.get(), backlog) != 0) {
    return SocketError(errno, StrCat("listen on ", address.ToString()));
  }
  return fd;
}

StatusOr<Fd> TryAccept(int listener) {
  Fd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.valid()) return fd;
  if (IsOurAccepted(errno)) return Fd();
  return SocketError(errno, "accept a connection");
}

StatusOr<Fd> Accept(int listener, double deadline_s) {
  for (;;) {
    CRIA_ASSIGN_OR_RETURN(Fd fd, TryAccept(listener));
    if (fd.valid()) return fd;
    if (!WaitFor(listener, POLLIN, deadline_s)) {
      return DeadlineExceededError("accept: nobody connected before the deadline");
    }
  }
}

StatusOr<Fd> StartConnect(const SocketAddress& address, int receive_bytes) {
  CRIA_ASSIGN_OR_RETURN(Fd fd, NewSocket(address.family()));
  SetNoDelay(fd.get());
  if (receive_bytes > 0) SetOption(fd.get(), SOL_SOCKET, SO_RCVBUF, receive_bytes);
  if (connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return SocketError(errno, StrCat("connect to ", address.ToString()));
  }
  return fd;
}

Status ConnectResult(int fd, const SocketAddress& address) {
  int error_number = 0;
  socklen_t length = sizeof(error_number);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &length) != 0) error_number = errno;
  if (error_number == 0) return OkStatus();
  return SocketError(error_number, StrCat("connect to ", address.ToString()));
}

StatusOr<Fd> Connect(const SocketAddress& address, double deadline_s) {
  Backoff backoff(BackoffSeed());
  double try_s = kFirstTrySeconds;
  Status last = OkStatus();
  for (;;) {
    StatusOr<Fd> fd = StartConnect(address);
    if (fd.ok()) {
      const double try_end_s = std::min(deadline_s, Now() + try_s);
      last = WaitFor(fd->get(), POLLOUT, try_end_s)
                 ? ConnectResult(fd->get(), address)
                 : UnavailableError("connect to ", address.ToString(), ": no answer");
      if (last.ok()) return fd;
      try_s = std::min(2 * try_s, kTrySecondsMax);
    } else {
      last = fd.status();
    }
    // A full table of ports or a lack of descriptors is not cured by a peer.
    if (last.code() != StatusCode::kUnavailable) return last;
    const double next_s = Now() + backoff.Next();
    if (next_s >= deadline_s) {
      return DeadlineExceededError(Message(last), " until the deadline");
    }
    SleepUntil(next_s);
  }
}

void SetNoDelay(int fd) { SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1); }

void SetDeadPeerTimeout(int fd, double seconds) {
  constexpr int kProbes = 4;
  const int interval_s = std::max(1, static_cast<int>(seconds / (kProbes + 1)));
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::lround(seconds * 1000)));
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, interval_s);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

Status SendExactly(int fd, std::span<const std::byte> bytes, double deadline_s) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t sent = send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent >= 0) {
      done += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      if (!WaitFor(fd, POLLOUT, deadline_s)) {
        return DeadlineExceededError("send: ", done, " of ", bytes.size(),
                                     " bytes were taken before the deadline");
      }
    } else if (errno != EINTR) {
      return SocketError(errno, StrCat("send, after ", done, " of ", bytes.size(), " bytes"));
    }
  }
  return OkStatus();
}

Status RecvExactly(int fd, std::span<std::byte> bytes, double deadline_s) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = recv(fd, bytes.data() + done, bytes.size() - done, 0);
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (got == 0) {  // the end: errno says nothing here
      return UnavailableError("recv: closed by the peer after ", done, " of ", bytes.size(),
                              " bytes");
    } else if (errno == EAGAIN) {
      if (!WaitFor(fd, POLLIN, deadline_s)) {
        return DeadlineExceededError("recv: ", done, " of ", bytes.size(),
                                     " bytes came before the deadline");
      }
    } else if (errno != EINTR) {
      return SocketError(errno, StrCat("recv, after ", done, " of ", bytes.size(), " bytes"));
    }
  }
  return OkStatus();
}

bool WaitFor(int fd, short events, double deadline_s) {
  for (;;) {
    pollfd entry = {.fd = fd, .events = events, .revents = 0};
    const int milliseconds = PollMilliseconds(deadline_s);
    if (poll(&entry, 1, milliseconds) > 0) return true;
    if (milliseconds == 0) return false;
  }
}

int PollMilliseconds(double deadline_s) {
  const double left_ms = std::ceil((deadline_s - Now()) * 1000);
  if (left_ms <= 0) return 0;
  return static_cast<int>(std::min(left_ms, static_cast<double>(kPollMillisecondsMax)));
}

}  // namespace cria::comm
