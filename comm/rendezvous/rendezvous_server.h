// The master's side of the rendezvous: takes ranks in, gives each its place in the tree, makes the
// map of their records and sends it to the first `degree` of them, who pass it on.
//
//   CRIA_ASSIGN_OR_RETURN(auto server, RendezvousServer::Create(loop.get(), {.port = 29500}));
//   while (!server->done()) CRIA_RETURN_IF_ERROR(loop->RunOnce(deadline_s));
//
// Rank 0 runs one for its own job, beside its client, on one loop; rendezvous_main runs one for any
// number of jobs, one after another or at once (told apart by RankEnvironment::job).
// A rank costs the master one connection, one message in and one out; but for the first `degree`
// nobody stays connected. Connections that do not speak the protocol, or not in time, are dropped
// and harm nobody. Thread-compatible: lives on its loop's thread.

#ifndef CRIA_COMM_RENDEZVOUS_RENDEZVOUS_SERVER_H_
#define CRIA_COMM_RENDEZVOUS_RENDEZVOUS_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/status.h"
#include "comm/net/fd.h"
#include "comm/rendezvous/event_loop.h"
#include "comm/rendezvous/frame_socket.h"
#include "comm/rendezvous/rendezvous_session.h"

namespace cria::comm {

struct RendezvousServerOptions {
  std::string address = {};  // numeric; empty: all of this machine's, IPv6 and IPv4
  int port = 0;              // 0: any
  int backlog = 4096;
  int degree = 32;
  double timeout_s = 300;       // from a job's first rank to its map
  double hello_timeout_s = 10;  // a connection that says nothing for so long is dropped
  // Serve this job only, and be done with it; else any job, for ever.
  bool one_job = false;
  std::string job = {};
  int world_size = 0;  // 0: as the first rank says
};

class RendezvousServer : public FrameSocket::Owner, public EventHandler {
 public:
  // Unavailable when the port is taken.
  static StatusOr<std::unique_ptr<RendezvousServer>> Create(EventLoop* loop,
                                                            const RendezvousServerOptions& options);
  ~RendezvousServer() override;

  int port() const { return port_; }
  // The only job is over, and all who waited for its outcome were told. Never without one_job.
  bool done() const;
  // Nobody has come yet.
  bool idle() const { return jobs_.empty() && !finished_; }
  const WireCounters& counters() const { return counters_; }

  void OnEvents(uint32_t events) override;
  void OnFrame(FrameSocket* socket, const FrameHeader& header, std::string_view payload) override;
  void OnClosed(FrameSocket* socket, const Status& why) override;
  void OnFlushed(FrameSocket* socket) override;

 private:
  struct Job {
    std::unique_ptr<RendezvousSession> session;
    double start_s = 0;
    double deadline_s = 0;
    EventLoop::TimerId timer = {};
    Status failure = OkStatus();  // the outcome, when it is one
    bool over = false;
    std::set<int64_t> children;    // tags of the peers at positions 1 .. degree
    std::string turned_away = {};  // the last stranger, for the timeout's message
  };
  struct Peer {
    std::unique_ptr<FrameSocket> socket;
    double accepted_s = 0;
    Job* job = nullptr;  // after its hello
    int rank = -1;
    bool leaving = false;  // closes when it is flushed
  };

  RendezvousServer(EventLoop* loop, const RendezvousServerOptions& options)
      : loop_(loop), options_(options) {}
  void TakeConnections();
  void DropStrangers();
  void OnHello(Peer* peer, std::string_view payload);
  // The job that a hello belongs to, made when it is its first; an error for this rank alone.
  StatusOr<Job*> FindJob(const Hello& hello, const std::string& from);
  void ShortenDeadline(Job* job, double deadline_s);
  void OnRecords(Peer* peer, std::string_view payload);
  void FailJob(Job* job, const Status& why);
  void EndJob(Job* job, const SharedFrame& last_words);
  void ForgetJob(Job* job);
  void SendAndLeave(Peer* peer, SharedFrame frame);
  void Remove(int64_t tag);
  Peer* Find(const FrameSocket* socket);

  EventLoop* const loop_;
  const RendezvousServerOptions options_;
  Fd listener_;
  EventLoop::WatchId watch_;
  int port_ = 0;
  int64_t last_tag_ = 0;
  std::map<int64_t, Peer> peers_;
  std::set<int64_t> strangers_;  // tags of peers without a hello, the oldest first
  EventLoop::TimerId stranger_timer_ = {};
  EventLoop::TimerId pause_timer_ = {};
  std::map<std::string, std::unique_ptr<Job>> jobs_;  // by RankEnvironment::job
  bool finished_ = false;                             // one_job: it is over and forgotten
  WireCounters counters_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_RENDEZVOUS_SERVER_H_
