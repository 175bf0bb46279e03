// A TCP connection that carries frames (frame.h), on an event loop.
//
//   FrameSocket socket(loop, owner, {.payload_bytes_max = 4096});
//   CRIA_RETURN_IF_ERROR(socket.Connect(address, {MakeFrame(FrameKind::kHello, payload)}));
//   CRIA_RETURN_IF_ERROR(socket.Adopt(fd));      // or one that was accepted
//   socket.Send(frame);                          // queued, also before it is connected
//
// Calls of the owner come from the loop's thread. After OnClosed, and after Close, there are no
// more. An owner that is called never destroys the socket there: EventLoop::DestroyLater does.
// Bytes that are no frames close the connection with DataLoss. Thread-compatible.

#ifndef CRIA_COMM_RENDEZVOUS_FRAME_SOCKET_H_
#define CRIA_COMM_RENDEZVOUS_FRAME_SOCKET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/net/address.h"
#include "comm/net/fd.h"
#include "comm/rendezvous/event_loop.h"
#include "comm/rendezvous/frame.h"

namespace cria::comm {

// What an endpoint did, for the benchmark's table.
struct WireCounters {
  int64_t connections = 0;  // that it opened
  int64_t messages = 0;     // that it sent
  int64_t bytes = 0;        // that it sent
};

class FrameSocket : public EventHandler {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // `payload` lives as long as the call; its checksum is right.
    virtual void OnFrame(FrameSocket* socket, const FrameHeader& header,
                         std::string_view payload) = 0;
    // The connection is over: Unavailable (refused, reset, closed by the peer) or DataLoss.
    virtual void OnClosed(FrameSocket* socket, const Status& why) = 0;
    // All queued frames were handed to the kernel.
    virtual void OnFlushed(FrameSocket* socket) { static_cast<void>(socket); }
  };

  // `counters` may be null.
  FrameSocket(EventLoop* loop, Owner* owner, uint32_t payload_bytes_max, WireCounters* counters)
      : loop_(loop), owner_(owner), counters_(counters), payload_bytes_max_(payload_bytes_max) {}
  ~FrameSocket() override { Close(); }
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  // Starts to connect and sends `first`; a failure that shows later comes as OnClosed.
  // `receive_bytes` as StartConnect takes it.
  Status Connect(const SocketAddress& address, std::vector<SharedFrame> first,
                 int receive_bytes = 0);
  // Takes an accepted connection, and reads: the owner may be called before the return.
  Status Adopt(Fd fd);
  // Never calls the owner; what cannot be sent shows as OnClosed from the loop.
  void Send(SharedFrame frame);
  void Close();
  // Close in one packet, without waiting for the peer's farewell (RST): for the side that has got
  // the last word, so that a busy master is not left with thousands of sockets in TIME_WAIT.
  void Abort();

  bool open() const { return fd_.valid(); }
  bool connected() const { return open() && !connecting_; }
  // It is connected, or was before it was closed.
  bool was_connected() const { return !connecting_; }
  bool flushed() const { return first_ == queue_.size(); }
  int fd() const { return fd_.get(); }
  void SetPayloadBytesMax(uint32_t bytes) { payload_bytes_max_ = bytes; }
  // For the owner: which of its connections this is.
  int64_t tag() const { return tag_; }
  void SetTag(int64_t tag) { tag_ = tag; }

  void OnEvents(uint32_t events) override;

 private:
  Status Start();
  void Count(const std::string& frame);
  // False when the connection is broken.
  bool WriteSome();
  void ReadSome();
  // Hands whole frames at the start of `bytes` to the owner; returns how many bytes they took, or
  // npos when the connection is closed now.
  size_t TakeFrames(std::string_view bytes);
  void Keep(std::string_view start_of_frame);
  void Fail(const Status& why);
  void UpdateEvents();

  EventLoop* const loop_;
  Owner* const owner_;
  WireCounters* const counters_;
  uint32_t payload_bytes_max_;
  int64_t tag_ = -1;
  Fd fd_;
  EventLoop::WatchId watch_;
  SocketAddress address_;
  bool connecting_ = true;
  bool waits_to_write_ = false;
  std::string pending_;             // the start of a frame
  std::vector<SharedFrame> queue_;  // from first_ on
  size_t first_ = 0;
  size_t sent_of_first_ = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_FRAME_SOCKET_H_
