// The listening port: takes connections, reads their hellos, finds the group of each.
//
//   acceptor.AddPoll(&entries);  ... poll ...  acceptor.Handle(entries, now);
//
// A connection whose group does not exist here yet is held until it does. One that says something
// else than a hello of this job, or nothing for a while, is dropped: it harms nobody, and holds one
// of a limited number of places meanwhile. Single-threaded: the domain's thread.

#ifndef CRIA_COMM_TCP_ACCEPTOR_H_
#define CRIA_COMM_TCP_ACCEPTOR_H_

#include <poll.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/net/fd.h"
#include "comm/tcp/group_state.h"
#include "comm/tcp/wire.h"

namespace cria::comm::tcp {

// What the acceptor asks the domain.
class AcceptorHooks {
 public:
  virtual ~AcceptorHooks() = default;
  // nullptr when there is no such group here.
  virtual std::shared_ptr<GroupState> FindGroup(uint64_t id) = 0;
  // A group of that name that waits for that rank, under another id.
  virtual std::shared_ptr<GroupState> FindWaitingNamesake(const Hello& hello) = 0;
  virtual bool GroupClosed(uint64_t id) = 0;
  // A control connection, its hello read, the reply sent.
  virtual void TakeControl(Fd fd, int from_world) = 0;
  // accept(2) failed for want of file descriptors: who waits for a peer would wait for ever.
  virtual void AcceptFailed(const Status& status) = 0;
};

class Acceptor {
 public:
  Acceptor(Fd listener, AcceptorHooks* hooks) : listener_(std::move(listener)), hooks_(hooks) {}

  // Before it, nobody is known: hellos wait.
  void Start(int world_rank, int world_size, uint64_t job) {
    world_rank_ = world_rank;
    world_size_ = world_size;
    job_ = job;
  }
  void AddPoll(double now_s, std::vector<pollfd>* entries);
  // `entries` as poll left them.
  void Handle(const std::vector<pollfd>& entries, double now_s);
  // Looks at the held connections again: a group was created, or waits.
  void Reconsider(double now_s);
  // True when a held connection wants this group.
  bool Holds(uint64_t group_id) const;

 private:
  enum class Phase : uint8_t { kHello, kHeld, kDraining, kDead };
  struct Pending {
    Fd fd = {};
    Phase phase = Phase::kHello;
    double since_s = 0;
    Bytes in = {};
    size_t wanted = sizeof(HelloFixed);
    Hello hello = {};
    int entry = -1;  // among those of the last AddPoll
  };

  void AcceptAll(double now_s);
  void Read(Pending* pending, double now_s);
  // What to do with a connection whose hello is complete.
  void Decide(Pending* pending, double now_s);
  void Reject(Pending* pending, ReplyCode code, const std::string& text, double now_s);
  void DropOldestUnknown();

  const Fd listener_;
  AcceptorHooks* const hooks_;
  int world_rank_ = -1;
  int world_size_ = 0;
  uint64_t job_ = 0;
  std::list<Pending> pending_;
  int num_held_ = 0;
  double accept_again_s_ = 0;
  int listener_entry_ = -1;
};

}  // namespace cria::comm::tcp

#endif  // CRIA_COMM_TCP_ACCEPTOR_H_
