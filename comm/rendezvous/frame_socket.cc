#include "comm/rendezvous/frame_socket.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/hash.h"
#include "comm/net/socket.h"

namespace cria::comm {
namespace {

constexpr size_t kFramesAtOnce = 8;
constexpr size_t kReserveBytesMax = size_t{4} << 20;

}  // namespace

Status FrameSocket::Connect(const SocketAddress& address, std::vector<SharedFrame> first,
                            int receive_bytes) {
  CRIA_ASSIGN_OR_RETURN(fd_, StartConnect(address, receive_bytes));
  address_ = address;
  if (counters_ != nullptr) ++counters_->connections;
  for (const SharedFrame& frame : first) Count(*frame);
  queue_ = std::move(first);
  // Inside a host the connection is there by now, as a rule, and the frames go out at once. An
  // error shows again when the loop asks the socket.
  WriteSome();
  return Start();
}

Status FrameSocket::Adopt(Fd fd) {
  fd_ = std::move(fd);
  connecting_ = false;
  // What the peer sent with its connect is here, as a rule, and may be all there is to say.
  ReadSome();
  return open() ? Start() : OkStatus();
}

Status FrameSocket::Start() {
  waits_to_write_ = connecting_ || !flushed();
  const uint32_t events = EPOLLIN | (waits_to_write_ ? uint32_t{EPOLLOUT} : 0U);
  const auto watch = loop_->Watch(fd_.get(), events, this);
  if (!watch.ok()) {
    fd_.Reset();
    return watch.status();
  }
  watch_ = *watch;
  return OkStatus();
}

void FrameSocket::Close() {
  if (!open()) return;
  loop_->Unwatch(watch_, fd_.get());
  fd_.Reset();
  queue_.clear();
  first_ = 0;
}

void FrameSocket::Abort() {
  if (!open()) return;
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close();
}

void FrameSocket::Fail(const Status& why) {
  Close();
  owner_->OnClosed(this, why);
}

void FrameSocket::Count(const std::string& frame) {
  if (counters_ == nullptr) return;
  ++counters_->messages;
  counters_->bytes += static_cast<int64_t>(frame.size());
}

void FrameSocket::Send(SharedFrame frame) {
  if (!open()) return;
  Count(*frame);
  queue_.push_back(std::move(frame));
  if (queue_.size() - first_ > 1 && !connecting_) return;
  // An error here shows again when the loop asks the socket.
  WriteSome();
  if (watch_.slot_plus_1 != 0) UpdateEvents();
}

bool FrameSocket::WriteSome() {
  while (!flushed()) {
    std::array<iovec, kFramesAtOnce> parts = {};
    const size_t num_parts = std::min(queue_.size() - first_, parts.size());
    size_t skip = sent_of_first_;
    for (size_t i = 0; i < num_parts; ++i) {
      const std::string& frame = *queue_[first_ + i];
      // sendmsg only reads, but its type does not say so.
      parts[i].iov_base = const_cast<char*>(frame.data() + skip);
      parts[i].iov_len = frame.size() - skip;
      skip = 0;
    }
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = num_parts;
    const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || (connecting_ && errno == ENOTCONN);
    }
    connecting_ = false;
    sent_of_first_ += static_cast<size_t>(sent);
    while (!flushed() && sent_of_first_ >= queue_[first_]->size()) {
      sent_of_first_ -= queue_[first_]->size();
      queue_[first_++].reset();
    }
  }
  queue_.clear();
  first_ = 0;
  return true;
}

void FrameSocket::UpdateEvents() {
  const bool wants_to_write = connecting_ || !flushed();
  if (wants_to_write == waits_to_write_) return;
  waits_to_write_ = wants_to_write;
  loop_->Change(watch_, fd_.get(), EPOLLIN | (wants_to_write ? uint32_t{EPOLLOUT} : 0U));
}

void FrameSocket::OnEvents(uint32_t events) {
  if (connecting_) {
    if (const Status result = ConnectResult(fd_.get(), address_); !result.ok()) return Fail(result);
    if ((events & EPOLLOUT) == 0) return;
    connecting_ = false;
  }
  if ((events & EPOLLOUT) != 0) {
    const bool had_frames = !flushed();
    // What the peer said before it closed is read before the error is reported.
    if (!WriteSome()) events |= EPOLLIN;
    UpdateEvents();
    if (had_frames && flushed()) owner_->OnFlushed(this);
    if (!open()) return;
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) ReadSome();
}

void FrameSocket::ReadSome() {
  for (;;) {
    const std::span<char> room = loop_->scratch();
    const ssize_t got = recv(fd_.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return;
      return Fail(SocketError(errno, "receive"));
    }
    if (got == 0) return Fail(UnavailableError("the connection was closed"));
    std::string_view bytes(room.data(), static_cast<size_t>(got));
    if (!pending_.empty()) {
      pending_.append(bytes);
      bytes = pending_;
    }
    // Frames end where `bytes` ends, as a rule, and nothing is copied.
    const size_t taken = TakeFrames(bytes);
    if (taken == std::string_view::npos) return;
    if (pending_.empty()) {
      Keep(bytes.substr(taken));
    } else {
      pending_.erase(0, taken);
    }
    if (static_cast<size_t>(got) < room.size()) return;
  }
}

void FrameSocket::Keep(std::string_view start_of_frame) {
  if (start_of_frame.size() >= kFrameHeaderBytes) {
    // A large frame comes in pieces: room for all of it, once, unless a stranger only says so.
    const auto header = ParseFrameHeader(start_of_frame, payload_bytes_max_);
    if (header.ok()) {
      pending_.reserve(std::min<size_t>(header->payload_bytes, kReserveBytesMax) +
                       kFrameHeaderBytes);
    }
  }
  pending_.assign(start_of_frame);
}

size_t FrameSocket::TakeFrames(std::string_view bytes) {
  size_t taken = 0;
  while (bytes.size() - taken >= kFrameHeaderBytes) {
    const std::string_view rest = bytes.substr(taken);
    const auto header = ParseFrameHeader(rest, payload_bytes_max_);
    if (!header.ok()) {
      Fail(header.status());
      return std::string_view::npos;
    }
    if (rest.size() - kFrameHeaderBytes < header->payload_bytes) break;
    const std::string_view payload = rest.substr(kFrameHeaderBytes, header->payload_bytes);
    if (Hash64(payload) != header->checksum) {
      Fail(DataLossError("a \"", Name(header->kind), "\" of ", payload.size(),
                         " bytes has a wrong checksum"));
      return std::string_view::npos;
    }
    taken += kFrameHeaderBytes + payload.size();
    owner_->OnFrame(this, *header, payload);
    if (!open()) return std::string_view::npos;
  }
  // Another program's greeting may be shorter than a header, and all that it says.
  if (!MayBecomeFrame(bytes.substr(taken))) {
    Fail(DataLossError("got bytes that are no message of the rendezvous"));
    return std::string_view::npos;
  }
  return taken;
}

}  // namespace cria::comm
