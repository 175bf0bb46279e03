#include "comm/tcp/control.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/log.h"
#include "comm/tcp/link.h"

namespace cria::comm::tcp {
namespace {

constexpr double kRefusedSeconds = 0.2;
constexpr double kTrySeconds = 3;
// What waits for a peer that does not read; more is nonsense, the connection goes.
constexpr size_t kOutBytesMax = 1 << 20;
// Control connections that others opened; a rank needs one each.
constexpr size_t kConnectionsMax = 1 << 16;

}  // namespace

void Control::Take(Fd fd, int world) {
  if (connections_.size() >= kConnectionsMax) return;
  TuneSocket(fd.get(), /*same_host=*/false);
  connections_.push_back({.fd = std::move(fd),
                          .world = world,
                          .phase = Phase::kOpen,
                          .replied = true,
                          .backoff = Backoff(BackoffSeed())});
}

Control::Connection* Control::To(int world, double now_s) {
  for (Connection& connection : connections_) {
    if (connection.world == world && connection.phase != Phase::kDead) {
      if (connection.out.size() - connection.out_done < kOutBytesMax) return &connection;
      Broken(&connection);  // it has not read for long
    }
  }
  connections_.push_back({.world = world,
                          .opened_here = true,
                          .address = hooks_->AddressOf(world),
                          .backoff = Backoff(BackoffSeed(), 0.002, 0.05)});
  Connection* connection = &connections_.back();
  Hello hello;
  hello.fixed = hooks_->ControlHello(world);
  AppendHello(hello, &connection->out);
  Advance(connection, now_s);
  return connection;
}

void Control::Ask(int world, uint64_t group_id, const Ping& ping, double now_s) {
  Connection* connection = To(world, now_s);
  AppendPing(group_id, ping, &connection->out);
  Write(connection);
}

void Control::Answer(int world, uint64_t group_id, const Pong& pong, double now_s) {
  Connection* connection = To(world, now_s);
  AppendPong(group_id, pong, &connection->out);
  Write(connection);
}

void Control::Tell(int world, uint64_t group_id, const Poison& poison, double now_s) {
  Connection* connection = To(world, now_s);
  AppendPoison(group_id, poison, &connection->out);
  Write(connection);
}

void Control::Advance(Connection* connection, double now_s) {
  if (connection->phase == Phase::kClosed) {
    if (now_s < connection->retry_s) return;
    StatusOr<Fd> fd = StartConnect(connection->address);
    if (!fd.ok()) return Again(connection, fd.status(), now_s);
    connection->fd = *std::move(fd);
    TuneSocket(connection->fd.get(), /*same_host=*/false);
    connection->phase = Phase::kConnecting;
    connection->since_s = now_s;
  }
  if (connection->phase != Phase::kConnecting) return;
  if (!WaitFor(connection->fd.get(), POLLOUT, 0)) {
    if (now_s - connection->since_s > kTrySeconds) {
      Again(connection, UnavailableError("no answer"), now_s);
    }
    return;
  }
  const Status status = ConnectResult(connection->fd.get(), connection->address);
  if (!status.ok()) return Again(connection, status, now_s);
  connection->phase = Phase::kOpen;
  connection->refused_since_s = 0;
  Write(connection);
}

void Control::Again(Connection* connection, const Status& error, double now_s) {
  connection->fd.Reset();
  connection->phase = Phase::kClosed;
  connection->retry_s = now_s + connection->backoff.Next();
  if (SocketErrno(error) != ECONNREFUSED) {
    connection->refused_since_s = 0;
    return;
  }
  if (connection->refused_since_s == 0) connection->refused_since_s = now_s;
  if (now_s - connection->refused_since_s < kRefusedSeconds) return;
  connection->phase = Phase::kDead;
  hooks_->OnDead(connection->world, Message(error));
}

void Control::Broken(Connection* connection) {
  connection->phase = Phase::kDead;
  connection->fd.Reset();
}

void Control::Write(Connection* connection) {
  if (connection->phase != Phase::kOpen) return;
  while (connection->phase == Phase::kOpen && connection->out_done < connection->out.size()) {
    const ssize_t sent = send(connection->fd.get(), connection->out.data() + connection->out_done,
                              connection->out.size() - connection->out_done, MSG_NOSIGNAL);
    if (sent >= 0) {
      connection->out_done += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      Broken(connection);
    }
  }
  connection->out.clear();
  connection->out_done = 0;
}

void Control::Read(Connection* connection) {
  std::array<std::byte, 16 << 10> buffer;
  while (connection->phase == Phase::kOpen) {
    const ssize_t got = recv(connection->fd.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      Broken(connection);
      return;
    }
    connection->in.insert(connection->in.end(), buffer.data(), buffer.data() + got);
    if (!TakeFrames(connection)) Broken(connection);
  }
}

bool Control::TakeReply(Connection* connection) {
  ReplyFixed reply;
  if (connection->in.size() < sizeof(reply)) return true;
  std::memcpy(&reply, connection->in.data(), sizeof(reply));
  if (!CheckReply(reply).ok() || reply.code != ReplyCode::kWelcome || reply.text_bytes != 0) {
    LogDebug("world rank ", connection->world, " does not take control connections of this job");
    return false;
  }
  connection->in.erase(connection->in.begin(), connection->in.begin() + sizeof(reply));
  connection->replied = true;
  return true;
}

bool Control::TakeFrames(Connection* connection) {
  if (!connection->replied && !TakeReply(connection)) return false;
  if (!connection->replied) return true;
  size_t done = 0;
  const std::span<const std::byte> in(connection->in);
  while (in.size() - done >= sizeof(FrameFixed)) {
    FrameFixed frame;
    std::memcpy(&frame, in.data() + done, sizeof(frame));
    if (!CheckFrame(frame).ok()) return false;
    if (in.size() - done < sizeof(frame) + frame.body_bytes) break;
    Dispatch(connection->world, frame, in.subspan(done + sizeof(frame), frame.body_bytes));
    done += sizeof(frame) + frame.body_bytes;
  }
  connection->in.erase(connection->in.begin(),
                       connection->in.begin() + static_cast<std::ptrdiff_t>(done));
  return true;
}

void Control::Dispatch(int world, const FrameFixed& frame, std::span<const std::byte> body) {
  if (frame.type == FrameType::kPing) {
    if (const auto ping = ReadPing(body); ping.ok()) hooks_->OnPing(world, frame.group_id, *ping);
  } else if (frame.type == FrameType::kPong) {
    if (const auto pong = ReadPong(body); pong.ok()) hooks_->OnPong(world, frame.group_id, *pong);
  } else if (frame.type == FrameType::kPoison) {
    if (const auto poison = ReadPoison(body); poison.ok()) {
      hooks_->OnPoison(world, frame.group_id, *poison);
    }
  }
}

void Control::AddPoll(std::vector<pollfd>* entries) {
  for (Connection& connection : connections_) {
    connection.entry = -1;
    if (!connection.fd.valid()) continue;
    connection.entry = static_cast<int>(entries->size());
    const bool writes =
        connection.phase == Phase::kConnecting || connection.out_done < connection.out.size();
    entries->push_back({.fd = connection.fd.get(),
                        .events = static_cast<short>(POLLIN | (writes ? POLLOUT : 0)),
                        .revents = 0});
  }
}

void Control::Handle(const std::vector<pollfd>& entries, double now_s) {
  // Handlers may add connections: a list keeps the others where they are.
  for (Connection& connection : connections_) {
    Advance(&connection, now_s);
    if (connection.phase != Phase::kOpen || connection.entry < 0) continue;
    if (entries[static_cast<size_t>(connection.entry)].revents == 0) continue;
    Write(&connection);
    Read(&connection);
  }
  connections_.remove_if(
      [](const Connection& connection) { return connection.phase == Phase::kDead; });
}

double Control::retry_s() const {
  double first_s = std::numeric_limits<double>::max();
  for (const Connection& connection : connections_) {
    if (connection.phase == Phase::kClosed) first_s = std::min(first_s, connection.retry_s);
    if (connection.phase == Phase::kConnecting) {
      first_s = std::min(first_s, connection.since_s + kTrySeconds);
    }
  }
  return first_s;
}

bool Control::drained() const {
  return std::all_of(connections_.begin(), connections_.end(), [](const Connection& connection) {
    return connection.phase == Phase::kDead || connection.out.empty();
  });
}

}  // namespace cria::comm::tcp
