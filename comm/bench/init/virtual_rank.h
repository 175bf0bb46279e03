// One of thousands of ranks that share a process, for the init benchmark: real listening sockets,
// the real rendezvous client, real connections to its ring neighbours, on an event loop.
//
//   listen  -->  rendezvous (comm/rendezvous)  -->  groups from the mesh  -->  a connection to the
//   next rank of each group's ring, with the group's digest, which the neighbour checks and answers
//
// Neighbours on the same host meet on a Unix socket, once a pair, as shared memory does; others on
// a TCP connection for each group, as the TCP transport does. Thread-compatible: lives on its
// loop's thread.

#ifndef CRIA_COMM_BENCH_INIT_VIRTUAL_RANK_H_
#define CRIA_COMM_BENCH_INIT_VIRTUAL_RANK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/bench/init/mesh_groups.h"
#include "comm/bench/init/virtual_endpoint.h"
#include "comm/net/fd.h"
#include "comm/rendezvous/event_loop.h"
#include "comm/rendezvous/rendezvous_client.h"

namespace cria::comm {

// The map of a run, kept and decoded once for all ranks of one process.
class ProcessMap : public FramePool {
 public:
  explicit ProcessMap(int num_ranks) : num_ranks_(num_ranks) {}
  SharedFrame Share(const FrameHeader& header, std::string_view payload) override;
  // The map in this frame.
  StatusOr<const RankMap*> Decoded(const SharedFrame& frame);
  double decode_s() const { return decode_s_; }
  size_t map_bytes() const { return frame_ == nullptr ? 0 : frame_->size(); }

 private:
  const int num_ranks_;
  SharedFrame frame_;
  uint64_t checksum_ = 0;
  RankMap map_;
  double decode_s_ = 0;
};

class VirtualRank : public VirtualEndpoint {
 public:
  VirtualRank(EventLoop* loop, const VirtualJob* job, ProcessMap* process_map, int rank);
  ~VirtualRank() override;

  void Start() override;
  bool placed() const override { return client_ == nullptr || client_->depth() > 0; }
  WireCounters counters() const override;
  // The place and back, up the tree and down, the groups and back.
  int rounds() const override { return 2 * client_->depth() + 4; }

 private:
  class Link;
  class Listener;
  friend class Link;
  friend class Listener;

  Status Open();
  void OnMap();
  Status OpenGroups(const RankMap& map);
  Status ConnectTo(const RankMap& map, int peer, std::vector<int> groups);
  Status TakeLinks(int listener);
  // An incoming link told who it is and which groups it serves.
  Status CheckHello(int from, int group, uint64_t digest);
  std::string HelloFor(const std::vector<int>& groups) const;
  void CountDown();
  int HostOf(int rank) const { return rank / job_->ranks_per_host; }

  EventLoop* const loop_;
  const VirtualJob* const job_;
  ProcessMap* const process_map_;
  const int rank_;
  RankInfo info_;
  std::unique_ptr<Listener> tcp_;
  std::unique_ptr<Listener> unix_;
  std::unique_ptr<RendezvousClient> client_;
  std::vector<MeshGroup> groups_;
  std::vector<std::unique_ptr<Link>> links_;
  int num_open_ = 0;  // links, in and out, that are still to be agreed on
  WireCounters counters_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_INIT_VIRTUAL_RANK_H_
