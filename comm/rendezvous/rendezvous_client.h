// A rank's side of the rendezvous, as a state machine on an event loop: GatherRankMap runs one, the
// benchmark thousands, the same code.
//
//   RendezvousClient client(loop, config);
//   client.Start();
//   while (!client.done()) CRIA_RETURN_IF_ERROR(loop->RunOnce(deadline_s));
//   if (client.status().ok()) Use(client.map_frame());
//
//   connect to the master --place--> connect to the parent --map--> pass it on, done
//        ^                                  |
//        '--- parent or master lost: drop the children, wait a little, start over
//
// Records of the children are passed up as they come, in one message as a rule, and at the latest
// after a tenth of a second, so that the master always knows who is missing. A child that is lost
// before the map is there fails the rendezvous for all, by name; a lost parent makes its children
// come to the master again, which knows better than they what happened; a master that comes back
// (a stand-alone one that is restarted) finds all its ranks again. Thread-compatible: lives on its
// loop's thread; destroy it outside its loop's calls.

#ifndef CRIA_COMM_RENDEZVOUS_RENDEZVOUS_CLIENT_H_
#define CRIA_COMM_RENDEZVOUS_RENDEZVOUS_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/engine/rank_map.h"
#include "comm/net/address.h"
#include "comm/net/fd.h"
#include "comm/net/socket.h"
#include "comm/rendezvous/event_loop.h"
#include "comm/rendezvous/frame_socket.h"
#include "comm/rendezvous/messages.h"
#include "comm/rendezvous/rank_environment.h"
#include "comm/rendezvous/tree.h"

namespace cria::comm {

// Ranks that live in one process keep one copy of a map that is the same for all.
class FramePool {
 public:
  virtual ~FramePool() = default;
  // A kMap frame with this payload.
  virtual SharedFrame Share(const FrameHeader& header, std::string_view payload) = 0;
};

struct RendezvousClientConfig {
  SocketAddress master = {};
  RankEnvironment environment = {};
  RankInfo record = {};  // passes CheckRankInfo
  double timeout_s = 300;
  // A master that answered once and is gone is waited for this long.
  double master_restart_s = 10;
  // Who takes connections and does not answer as a master is tried for this long, and for six times
  // as long when it says nothing at all: a master may be slow.
  double stranger_s = 10;
  FramePool* pool = nullptr;           // may be null
  std::function<void()> on_done = {};  // called once, from the loop; may be empty
};

class RendezvousClient : public FrameSocket::Owner, public EventHandler {
 public:
  RendezvousClient(EventLoop* loop, RendezvousClientConfig config);
  ~RendezvousClient() override;

  // Starts; all outcomes, this one's too, come through done().
  void Start();

  bool done() const { return state_ == State::kDone; }
  // Valid when done.
  const Status& status() const { return status_; }
  const SharedFrame& map_frame() const { return map_frame_; }
  const WireCounters& counters() const { return counters_; }
  // A master has answered.
  bool placed() const { return depth_ > 0; }
  // Why the last try failed; OK when none has.
  const Status& last_error() const { return last_error_; }
  // Hops to the master.
  int depth() const { return depth_; }

  void OnEvents(uint32_t events) override;
  void OnFrame(FrameSocket* socket, const FrameHeader& header, std::string_view payload) override;
  void OnClosed(FrameSocket* socket, const Status& why) override;
  void OnFlushed(FrameSocket* socket) override;

 private:
  enum class State {
    kWaiting,      // before the next try
    kRegistering,  // with the master, until the place comes
    kGathering,    // in the tree: records go up
    kPassingOn,    // outcome known, still being sent to the children
    kDone,
  };
  struct Child {
    std::unique_ptr<FrameSocket> socket;
    int rank = -1;  // -1 before its join
    int position = 0;
  };

  // One try, from the master on.
  void Begin();
  void BeginTry(const SocketAddress& address, std::vector<SharedFrame> first);
  // Ends a try that gets nowhere.
  void StartTryTimer(const SocketAddress& address);
  void StartOver(const Status& why);
  // After a try with the master that failed: OK when another may do better.
  Status CheckForStranger(const Status& why, bool was_connected);
  Status CheckForLostMaster(const Status& why);
  Status OpenListener();
  void CloseListener();
  void DropConnections();
  SharedFrame HelloFrame() const;
  SharedFrame JoinFrame() const;

  void OnPlace(std::string_view payload);
  void OnMap(const FrameHeader& header, std::string_view payload);
  void OnUpFrame(const FrameHeader& header, std::string_view payload);
  void OnChildFrame(Child* child, const FrameHeader& header, std::string_view payload);
  void OnJoin(Child* child, std::string_view payload);
  void OnChildRecords(Child* child, std::string_view payload);
  void AddRecords(int count, std::string_view bytes);
  // Now, if those of all ranks below are there; else soon. `first`: none were waiting so far.
  void SendRecords(bool first);
  // Those that were not sent yet, in a frame.
  SharedFrame TakeRecords();
  void FlushRecords();
  int NumJoined() const;

  // Ends with this error, here and for all that this rank is connected to.
  void Fail(const Status& why);
  // Ends with the deadline's error.
  void OnDeadline();
  std::string WhatItWaitsFor() const;
  void FinishWhenFlushed();
  void Finish();

  EventLoop* const loop_;
  const RendezvousClientConfig config_;
  const uint64_t instance_;
  State state_ = State::kWaiting;
  Status status_;
  double start_s_ = 0;
  double deadline_s_ = 0;
  EventLoop::TimerId deadline_timer_ = {};
  EventLoop::TimerId retry_timer_ = {};
  EventLoop::TimerId try_timer_ = {};
  EventLoop::TimerId records_timer_ = {};
  Backoff backoff_;
  double try_s_;
  Status last_error_;            // of the last try
  bool master_seen_ = false;     // it has answered once
  double master_lost_s_ = 0;     // since when it does not any more; 0: it does
  double stranger_since_s_ = 0;  // the first sign that another program holds the port; 0: none

  Fd listener_;
  EventLoop::WatchId listener_watch_;
  int listener_port_ = 0;
  std::unique_ptr<FrameSocket> up_;  // the master or the parent
  bool up_is_master_ = true;
  Place place_;
  TreeShape shape_;
  std::map<int64_t, Child> children_;  // by tag, strangers too
  int64_t last_tag_ = 0;
  std::string records_;   // to send up
  int num_records_ = 0;   // in records_
  int num_gathered_ = 0;  // of this subtree, sent or not

  SharedFrame map_frame_;
  WireCounters counters_;
  int depth_ = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_RENDEZVOUS_CLIENT_H_
