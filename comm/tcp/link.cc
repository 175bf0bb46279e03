#include "comm/tcp/link.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace cria::comm::tcp {
namespace {

// A listener exists as long as its process: refusals for this long mean that it is gone.
constexpr double kRefusedSeconds = 0.3;
constexpr double kTrySeconds = 3;
constexpr double kDeadPeerSeconds = 120;
constexpr double kNever = 1e18;
constexpr int kLocalBufferBytes = 512 << 10;
constexpr int64_t kStripeBytes = 256 << 10;

}  // namespace

void TuneSocket(int fd, bool same_host) {
  SetNoDelay(fd);
  SetDeadPeerTimeout(fd, kDeadPeerSeconds);
  if (!same_host) return;
  const int bytes = kLocalBufferBytes;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
}

Link::Link(LinkConfig config)
    : config_(std::move(config)),
      streams_(static_cast<size_t>(config_.num_streams)),
      backoff_(BackoffSeed(), 0.001, 0.05) {}

Link::~Link() {
  for (Stream& stream : streams_) Close(&stream);
}

void Link::Close(Stream* stream) {
  if (stream->phase == Phase::kReady) {
    --num_ready_;
    config_.num_connections->fetch_sub(1, std::memory_order_relaxed);
  }
  *stream = Stream{};
}

void Link::Open(Stream* stream, bool replied) {
  stream->phase = Phase::kReady;
  stream->replied = replied;
  ++num_ready_;
  config_.num_connections->fetch_add(1, std::memory_order_relaxed);
}

Status Link::Advance(double now_s) {
  if (ready()) return OkStatus();
  for (int i = 0; i < config_.num_streams; ++i) CRIA_RETURN_IF_ERROR(AdvanceStream(i, now_s));
  return OkStatus();
}

Status Link::AdvanceStream(int index, double now_s) {
  Stream& stream = streams_[static_cast<size_t>(index)];
  switch (stream.phase) {
    case Phase::kClosed:
      if (!config_.connects || now_s < stream.retry_s) return OkStatus();
      return Started(&stream, index, now_s);
    case Phase::kConnecting: {
      if (!WaitFor(stream.fd.get(), POLLOUT, 0)) {
        if (now_s - stream.since_s < kTrySeconds) return OkStatus();
        return Again(&stream, UnavailableError("no answer"), now_s);
      }
      const Status status = ConnectResult(stream.fd.get(), config_.address);
      if (!status.ok()) return Again(&stream, status, now_s);
      stream.phase = Phase::kHello;
      [[fallthrough]];
    }
    case Phase::kHello:
      return SendOut(&stream);
    case Phase::kReady:
      return OkStatus();
  }
  return OkStatus();
}

Status Link::Started(Stream* stream, int index, double now_s) {
  StatusOr<Fd> fd = StartConnect(config_.address);
  if (!fd.ok()) return Again(stream, fd.status(), now_s);
  stream->fd = *std::move(fd);
  TuneSocket(stream->fd.get(), config_.same_host);
  stream->phase = Phase::kConnecting;
  stream->since_s = now_s;
  Hello hello = config_.hello;
  hello.fixed.stream = static_cast<uint16_t>(index);
  hello.fixed.num_streams = static_cast<uint16_t>(config_.num_streams);
  AppendHello(hello, &stream->out);
  return AdvanceStream(index, now_s);
}

Status Link::Again(Stream* stream, const Status& error, double now_s) {
  if (error.code() != StatusCode::kUnavailable) return error;
  if (SocketErrno(error) != ECONNREFUSED) {
    refused_since_s_ = 0;
  } else if (refused_since_s_ == 0) {
    refused_since_s_ = now_s;
  } else if (now_s - refused_since_s_ > kRefusedSeconds) {
    return error;
  }
  Close(stream);
  stream->retry_s = now_s + backoff_.Next();
  return OkStatus();
}

Status Link::SendOut(Stream* stream) {
  while (stream->out_done < stream->out.size()) {
    const ssize_t sent = send(stream->fd.get(), stream->out.data() + stream->out_done,
                              stream->out.size() - stream->out_done, MSG_NOSIGNAL);
    if (sent >= 0) {
      stream->out_done += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      return OkStatus();
    } else if (errno != EINTR) {
      return SocketError(errno, StrCat("hello to ", config_.address.ToString()));
    }
  }
  stream->out = {};
  // The side that was connected to sends a reply and gets none.
  Open(stream, /*replied=*/!config_.connects);
  return OkStatus();
}

Status Link::Adopt(Accepted accepted) {
  if (config_.connects || accepted.hello.num_streams != config_.num_streams) {
    return InvalidArgumentError("the peer opens ", accepted.hello.num_streams,
                                " streams, this rank expects ", config_.num_streams,
                                " (CRIA_COMM_TCP_STREAMS differs)");
  }
  Stream& stream = streams_[accepted.hello.stream];
  if (stream.phase != Phase::kClosed) {
    if (stream.phase == Phase::kReady) {
      return UnavailableError("the peer connected anew: it lost the connection");
    }
    Close(&stream);
  }
  stream.fd = std::move(accepted.fd);
  TuneSocket(stream.fd.get(), config_.same_host);
  AppendReply(ReplyCode::kWelcome, "", &stream.out);
  stream.phase = Phase::kHello;
  return SendOut(&stream);
}

int Link::StreamAt(int64_t bytes, int64_t done, int64_t* left) const {
  *left = bytes - done;
  if (config_.num_streams == 1 || bytes <= kStripeBytes) return 0;
  *left = std::min(*left, kStripeBytes - done % kStripeBytes);
  return static_cast<int>(done / kStripeBytes % config_.num_streams);
}

StatusOr<int64_t> Link::Write(int stream, std::span<const iovec> pieces) {
  Stream& one = streams_[static_cast<size_t>(stream)];
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  for (;;) {
    const ssize_t sent = sendmsg(one.fd.get(), &message, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<int64_t>(sent);
    if (errno == EAGAIN) return int64_t{0};
    if (errno == EINTR) continue;
    if (config_.connects && !one.replied) {
      // It may have said why before it closed.
      const StatusOr<bool> reply = TakeReply(&one);
      if (!reply.ok() && reply.status().code() == StatusCode::kInvalidArgument) {
        return reply.status();
      }
    }
    return SocketError(errno, "send");
  }
}

StatusOr<int64_t> Link::Read(int stream, std::span<const iovec> pieces) {
  Stream& one = streams_[static_cast<size_t>(stream)];
  if (!one.replied) {
    CRIA_ASSIGN_OR_RETURN(const bool welcome, TakeReply(&one));
    if (!welcome) return int64_t{0};
  }
  for (;;) {
    const ssize_t got = readv(one.fd.get(), pieces.data(), static_cast<int>(pieces.size()));
    if (got > 0) return static_cast<int64_t>(got);
    if (got == 0) return UnavailableError("the peer closed the connection");
    if (errno == EAGAIN) return int64_t{0};
    if (errno != EINTR) return SocketError(errno, "recv");
  }
}

StatusOr<bool> Link::TakeReply(Stream* stream) {
  for (;;) {
    size_t wanted = sizeof(ReplyFixed);
    ReplyFixed reply;
    if (stream->in.size() >= sizeof(reply)) {
      std::memcpy(&reply, stream->in.data(), sizeof(reply));
      CRIA_RETURN_IF_ERROR(CheckReply(reply));
      wanted += reply.text_bytes;
      if (stream->in.size() == wanted) {
        const std::string text(reinterpret_cast<const char*>(stream->in.data()) + sizeof(reply),
                               reply.text_bytes);
        if (reply.code != ReplyCode::kWelcome) return InvalidArgumentError(text);
        stream->in = {};
        stream->replied = true;
        return true;
      }
    }
    const size_t have = stream->in.size();
    stream->in.resize(wanted);
    const ssize_t got = recv(stream->fd.get(), stream->in.data() + have, wanted - have, 0);
    const int error_number = errno;
    stream->in.resize(have + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return UnavailableError("the peer closed the connection");
    if (got < 0 && error_number == EAGAIN) return false;
    if (got < 0 && error_number != EINTR) return SocketError(error_number, "recv");
  }
}

void Link::Settle(double deadline_s) {
  for (Stream& stream : streams_) {
    while (stream.phase == Phase::kReady && !stream.replied) {
      const StatusOr<bool> welcome = TakeReply(&stream);
      if (!welcome.ok() || *welcome || !WaitFor(stream.fd.get(), POLLIN, deadline_s)) break;
    }
  }
}

void Link::AddPoll(int read_stream, int write_stream, std::vector<pollfd>* entries) const {
  if (!ready()) {
    for (const Stream& stream : streams_) {
      if (stream.phase == Phase::kConnecting || stream.phase == Phase::kHello) {
        entries->push_back({.fd = stream.fd.get(), .events = POLLOUT, .revents = 0});
      }
    }
    return;
  }
  for (int i = 0; i < config_.num_streams; ++i) {
    const int events = (i == read_stream ? POLLIN : 0) | (i == write_stream ? POLLOUT : 0);
    if (events == 0) continue;
    entries->push_back({.fd = streams_[static_cast<size_t>(i)].fd.get(),
                        .events = static_cast<short>(events),
                        .revents = 0});
  }
}

double Link::retry_s() const {
  double first_s = kNever;
  if (!config_.connects) return first_s;
  for (const Stream& stream : streams_) {
    if (stream.phase == Phase::kClosed) first_s = std::min(first_s, stream.retry_s);
    if (stream.phase == Phase::kConnecting)
      first_s = std::min(first_s, stream.since_s + kTrySeconds);
  }
  return first_s;
}

}  // namespace cria::comm::tcp
