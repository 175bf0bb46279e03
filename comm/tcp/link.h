// The connections of one pair of ranks for one purpose: `streams` sockets that open lazily and
// carry bytes without ever blocking.
//
//   Link link(config);                       // closed
//   link.Advance(now);                       // connects, or waits for Adopt
//   while (link.ready()) { link.Write(0, pieces); link.Read(0, pieces); ... poll ... }
//
// The rank with the lower number in the world connects, the other one waits for it, so that the two
// never open a connection twice. The connecting side sends its hello and goes on at once; the reply
// is taken off the stream before the first byte of data. Single-threaded: the group's running
// thread.

#ifndef CRIA_COMM_TCP_LINK_H_
#define CRIA_COMM_TCP_LINK_H_

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/net/address.h"
#include "comm/net/fd.h"
#include "comm/net/socket.h"
#include "comm/tcp/group_state.h"
#include "comm/tcp/wire.h"

struct pollfd;

namespace cria::comm::tcp {

struct LinkConfig {
  int peer = 0;  // in the group
  bool connects = false;
  bool same_host = false;
  Hello hello = {};  // what this side sends when it connects; stream is filled in
  SocketAddress address = {};
  int num_streams = 1;
  std::atomic<int>* num_connections = nullptr;  // counts open sockets; outlives the link
};

class Link {
 public:
  explicit Link(LinkConfig config);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int peer() const { return config_.peer; }
  // All streams carry data.
  bool ready() const { return num_ready_ == config_.num_streams; }
  int num_streams() const { return config_.num_streams; }
  // The stream on which byte `done` of a message of `bytes` bytes travels, *left more with it:
  // large messages are dealt to the streams in stripes, header and small ones go on the first.
  int StreamAt(int64_t bytes, int64_t done, int64_t* left) const;

  // Starts and continues connecting. An error is final: a peer that is gone (Unavailable), another
  // group of that name (InvalidArgument, with the difference), no descriptors.
  Status Advance(double now_s);
  // Takes a connection that the peer opened.
  Status Adopt(Accepted accepted);

  // Bytes moved, 0 when the socket would block; Unavailable when the peer is gone.
  StatusOr<int64_t> Write(int stream, std::span<const iovec> pieces);
  StatusOr<int64_t> Read(int stream, std::span<const iovec> pieces);

  // Before the link is closed: takes the peer's replies that nobody has read. A socket that is
  // closed over unread data sends a reset, which throws away what the peer has yet to receive.
  // Waits for replies under way until deadline_s.
  void Settle(double deadline_s);

  // Adds what to poll for: opening, or the given directions of these streams (-1: none).
  void AddPoll(int read_stream, int write_stream, std::vector<pollfd>* entries) const;
  // When Advance has something to do again without an event; a large number when never.
  double retry_s() const;

 private:
  enum class Phase : uint8_t { kClosed, kConnecting, kHello, kReady };

  struct Stream {
    Fd fd = {};
    Phase phase = Phase::kClosed;
    bool replied = false;  // the peer's reply has been taken off
    Bytes out = {};        // hello or reply, still to be sent
    size_t out_done = 0;
    Bytes in = {};  // of the reply so far
    double since_s = 0;
    double retry_s = 0;
  };

  Status AdvanceStream(int index, double now_s);
  Status Started(Stream* stream, int index, double now_s);
  Status Again(Stream* stream, const Status& error, double now_s);
  Status SendOut(Stream* stream);
  // True when the reply is complete and a welcome.
  StatusOr<bool> TakeReply(Stream* stream);
  void Open(Stream* stream, bool replied);
  void Close(Stream* stream);

  const LinkConfig config_;
  std::vector<Stream> streams_;
  int num_ready_ = 0;
  Backoff backoff_;
  double refused_since_s_ = 0;
};

// Buffers for a connection inside one host: small enough that what is under way stays in the
// caches. Between hosts the kernel's own tuning is left alone.
void TuneSocket(int fd, bool same_host);

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_LINK_H_
