// The control connections between processes: who waits asks, who is asked answers, who fails tells
// all.
//
//   control.Ask(world, group_id, ping);  control.Tell(world, group_id, poison);
//   control.AddPoll(now, &entries);  ... poll ...  control.Handle(entries, now);
//
// A connection is opened by whoever first has something to say and serves both ways, all groups.
// Frames that cannot be delivered are lost: questions are repeated, and a peer that is gone needs
// no poison. Single-threaded: the domain's thread.

#ifndef CRIA_COMM_TCP_CONTROL_H_
#define CRIA_COMM_TCP_CONTROL_H_

#include <poll.h>

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/net/address.h"
#include "comm/net/fd.h"
#include "comm/net/socket.h"
#include "comm/tcp/wire.h"

namespace cria::comm::tcp {

class ControlHooks {
 public:
  virtual ~ControlHooks() = default;
  virtual SocketAddress AddressOf(int world) = 0;
  virtual HelloFixed ControlHello(int to_world) = 0;
  virtual void OnPing(int from_world, uint64_t group_id, const Ping& ping) = 0;
  virtual void OnPong(int from_world, uint64_t group_id, const Pong& pong) = 0;
  virtual void OnPoison(int from_world, uint64_t group_id, const Poison& poison) = 0;
  // The process at that rank is gone: nobody listens at its port any more.
  virtual void OnDead(int world, const std::string& why) = 0;
};

class Control {
 public:
  explicit Control(ControlHooks* hooks) : hooks_(hooks) {}

  void Take(Fd fd, int world);
  void Ask(int world, uint64_t group_id, const Ping& ping, double now_s);
  void Answer(int world, uint64_t group_id, const Pong& pong, double now_s);
  void Tell(int world, uint64_t group_id, const Poison& poison, double now_s);

  void AddPoll(std::vector<pollfd>* entries);
  void Handle(const std::vector<pollfd>& entries, double now_s);
  // When Handle has something to do without an event.
  double retry_s() const;
  // Everything that was said has been handed to the kernel, or to nobody.
  bool drained() const;

 private:
  enum class Phase : uint8_t { kClosed, kConnecting, kOpen, kDead };
  struct Connection {
    Fd fd = {};
    int world = -1;
    bool opened_here = false;
    Phase phase = Phase::kClosed;
    bool replied = false;
    Bytes out = {};
    size_t out_done = 0;
    Bytes in = {};
    SocketAddress address = {};
    Backoff backoff;
    double retry_s = 0;
    double since_s = 0;
    double refused_since_s = 0;
    int entry = -1;  // among those of the last AddPoll
  };

  // The frame to send goes to its `out`; opened when there is none.
  Connection* To(int world, double now_s);
  void Advance(Connection* connection, double now_s);
  void Again(Connection* connection, const Status& error, double now_s);
  void Write(Connection* connection);
  void Read(Connection* connection);
  void Broken(Connection* connection);
  // Takes whole frames off the front of `in`; false when the peer talks nonsense.
  bool TakeFrames(Connection* connection);
  bool TakeReply(Connection* connection);
  void Dispatch(int world, const FrameFixed& frame, std::span<const std::byte> body);

  ControlHooks* const hooks_;
  std::list<Connection> connections_;
};

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_CONTROL_H_
