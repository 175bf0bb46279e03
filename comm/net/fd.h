// The owner of a file descriptor: closes it once, moves, never copies.
//
//   Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
//   if (!fd.valid()) return SocketError(errno, "socket");
//
// Thread-compatible.

#ifndef CRIA_COMM_NET_FD_H_
#define CRIA_COMM_NET_FD_H_

#include <unistd.h>

#include <utility>

namespace cria::comm {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Hands the descriptor over; the caller closes it.
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    // No retry at EINTR: Linux has closed the descriptor by then.
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_NET_FD_H_
