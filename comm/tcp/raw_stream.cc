#include "comm/tcp/raw_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "comm/net/socket.h"
#include "comm/tcp/link.h"

namespace cria::comm {
namespace {

// The pieces that were fastest on the loopback: what is under way stays in the caches.
constexpr int64_t kSendBytes = 64 << 10;
constexpr int64_t kRecvBytes = 256 << 10;
constexpr double kTimeoutSeconds = 60;
constexpr int kSpins = 50;

}  // namespace

StatusOr<std::unique_ptr<RawStreams>> RawStreams::Open(int size, int rank, int* ports,
                                                       const std::function<void()>& barrier) {
  auto streams = std::make_unique<RawStreams>();
  const double deadline_s = RealClock()->MonotonicSeconds() + kTimeoutSeconds;
  CRIA_ASSIGN_OR_RETURN(const SocketAddress any, ParseAddress("127.0.0.1", 0));
  CRIA_ASSIGN_OR_RETURN(const Fd listener, Listen(any, 4));
  CRIA_ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(listener.get()));
  ports[rank] = bound.port();
  barrier();
  const bool connects = size > 2 || rank == 0;
  if (connects) {
    CRIA_ASSIGN_OR_RETURN(const SocketAddress next,
                          ParseAddress("127.0.0.1", ports[(rank + 1) % size]));
    CRIA_ASSIGN_OR_RETURN(streams->next_, Connect(next, deadline_s));
    tcp::TuneSocket(streams->next_.get(), /*same_host=*/true);
  }
  if (size > 2 || !connects) {
    CRIA_ASSIGN_OR_RETURN(streams->previous_, Accept(listener.get(), deadline_s));
    tcp::TuneSocket(streams->previous_.get(), /*same_host=*/true);
  }
  const Fd& either = streams->next_.valid() ? streams->next_ : streams->previous_;
  streams->next_fd_ = streams->next_.valid() ? streams->next_.get() : either.get();
  streams->previous_fd_ = streams->previous_.valid() ? streams->previous_.get() : either.get();
  streams->in_.resize(kRecvBytes);
  barrier();
  return streams;
}

Status RawStreams::Move(int64_t bytes) {
  if (static_cast<int64_t>(out_.size()) < bytes) out_.resize(static_cast<size_t>(bytes));
  int64_t sent = 0, got = 0;
  int idle = 0;
  while (sent < bytes || got < bytes) {
    bool moved = false;
    if (sent < bytes) {
      const ssize_t n = send(next_fd_, out_.data() + sent,
                             static_cast<size_t>(std::min(kSendBytes, bytes - sent)), MSG_NOSIGNAL);
      if (n > 0) sent += n;
      moved |= n > 0;
    }
    if (got < bytes) {
      const ssize_t n =
          recv(previous_fd_, in_.data(), static_cast<size_t>(std::min(kRecvBytes, bytes - got)), 0);
      if (n == 0) return UnavailableError("raw stream: closed");
      if (n > 0) got += n;
      moved |= n > 0;
    }
    idle = moved ? 0 : idle + 1;
    if (idle < kSpins) continue;
    pollfd entries[2] = {
        {.fd = next_fd_, .events = static_cast<short>(sent < bytes ? POLLOUT : 0), .revents = 0},
        {.fd = previous_fd_, .events = static_cast<short>(got < bytes ? POLLIN : 0), .revents = 0}};
    if (poll(entries, 2, static_cast<int>(kTimeoutSeconds * 1000)) == 0) {
      return DeadlineExceededError("raw stream: ", got, " of ", bytes, " bytes");
    }
  }
  return OkStatus();
}

}  // namespace cria::comm
