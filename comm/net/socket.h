// TCP sockets as the transport and the rendezvous use them: non-blocking, close-on-exec, every wait
// with a deadline.
//
//   CRIA_ASSIGN_OR_RETURN(Fd listener, Listen(address, /*backlog=*/4096));    // port 0: any
//   CRIA_ASSIGN_OR_RETURN(Fd client, Connect(address, deadline_s));
//   CRIA_RETURN_IF_ERROR(SendExactly(client.get(), bytes, deadline_s));
//   CRIA_ASSIGN_OR_RETURN(Fd served, Accept(listener.get(), deadline_s));
//
// Deadlines are times of RealClock()->MonotonicSeconds(). Signals (EINTR) never end a call, SIGPIPE
// is never raised. Thread-safe: the functions have no state.
// Errors: ResourceExhausted without file descriptors, naming the limit; DeadlineExceeded;
// Unavailable when the peer closed, reset or refused.

#ifndef CRIA_COMM_NET_SOCKET_H_
#define CRIA_COMM_NET_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/rng.h"
#include "base/status.h"
#include "comm/net/address.h"
#include "comm/net/fd.h"

namespace cria::comm {

// The Status of a failed socket call: Unavailable for what the peer or the network did,
// ResourceExhausted for EMFILE and ENFILE, with the limit; ErrnoError's else.
Status SocketError(int error_number, const std::string& what);
// The error_number of a Status that SocketError made; 0 for another.
int SocketErrno(const Status& status);

// How long to wait before the next try: 2^k * first_s, up to max_s, times a random factor in
// [0.5, 1.5) so that clients that failed together do not come back together.
class Backoff {
 public:
  explicit Backoff(uint64_t seed, double first_s = 0.002, double max_s = 0.5);
  double Next();

 private:
  const Rng rng_;
  const double max_s_;
  double delay_s_;
  uint64_t num_draws_ = 0;
};

// A seed for Backoff that differs between processes and calls.
uint64_t BackoffSeed();

// A socket that listens; LocalAddress tells the port that 0 became. SO_REUSEADDR is set, and
// TCP_NODELAY for what it accepts.
StatusOr<Fd> Listen(const SocketAddress& address, int backlog);

// The next connection, non-blocking. TryAccept returns an invalid Fd when there is none now (or it
// is gone already).
StatusOr<Fd> Accept(int listener, double deadline_s);
StatusOr<Fd> TryAccept(int listener);

// One try, not waited for: the socket becomes writable when it is over; ConnectResult tells how.
// receive_bytes > 0: room in the kernel for as much, so that it arrives while nobody reads; else as
// the kernel thinks fit, which begins with 64 KiB.
StatusOr<Fd> StartConnect(const SocketAddress& address, int receive_bytes = 0);
// Returns OK when connected; call it when the socket is writable.
Status ConnectResult(int fd, const SocketAddress& address);

// Connected, non-blocking, TCP_NODELAY. Refused, reset and lost tries (a listener that is not there
// yet or whose backlog is full) are repeated with Backoff until the deadline.
StatusOr<Fd> Connect(const SocketAddress& address, double deadline_s);

// A peer whose host died without a word is given up after this long with unacknowledged data
// (TCP_USER_TIMEOUT), or without an answer to keepalive probes. Best effort.
void SetDeadPeerTimeout(int fd, double seconds);
void SetNoDelay(int fd);

// Exactly these bytes, or an error: Unavailable "closed by the peer after 17 of 64 bytes".
Status SendExactly(int fd, std::span<const std::byte> bytes, double deadline_s);
Status RecvExactly(int fd, std::span<std::byte> bytes, double deadline_s);

// Waits until the socket has one of poll's `events` (POLLIN, POLLOUT) or an error to report; false
// at the deadline.
bool WaitFor(int fd, short events, double deadline_s);

// Milliseconds until the deadline as poll takes them: rounded up, 0 when it has passed, at most a
// minute.
int PollMilliseconds(double deadline_s);

}  // namespace cria::comm

#endif  // CRIA_COMM_NET_SOCKET_H_
