// A rank of the naive scheme that this project's start-up is compared with: it writes its address
// to a store, reads all others' one after another, connects to each of them, and then meets all
// others at the store once for each group (store_server.h).
//
// This is how torch.distributed's Gloo and NCCL groups started before 2024: N^2 reads at one
// thread, N (N - 1) / 2 connections, and a barrier of the world for each new group.
// Thread-compatible: lives on its loop's thread.

#ifndef CRIA_COMM_BENCH_INIT_STORE_RANK_H_
#define CRIA_COMM_BENCH_INIT_STORE_RANK_H_

#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/bench/init/store_server.h"
#include "comm/bench/init/virtual_endpoint.h"
#include "comm/net/fd.h"
#include "comm/rendezvous/event_loop.h"

namespace cria::comm {

class StoreRank : public VirtualEndpoint {
 public:
  StoreRank(EventLoop* loop, const VirtualJob* job, int rank);
  ~StoreRank() override;

  void Start() override;
  bool placed() const override { return phase_ != Phase::kPublish; }
  WireCounters counters() const override { return counters_; }
  int rounds() const override { return rounds_; }

 private:
  class StoreLink;
  class Listener;
  class MeshLink;

  Status Open();
  Status Ask(StoreOp op, uint32_t key, uint64_t value);
  // The reply to the last request; asks the next.
  Status OnReply(uint64_t value);
  Status NextStep();
  Status ConnectMore();
  Status TakeLinks();
  void OnMeshLink();

  enum class Phase { kPublish, kRead, kMesh, kJoinGroup, kWaitForGroup, kDone };

  EventLoop* const loop_;
  const VirtualJob* const job_;
  const int rank_;
  Phase phase_ = Phase::kPublish;
  int step_ = 0;  // within the phase: the peer that is read, the group that is made
  std::unique_ptr<StoreLink> store_;
  std::unique_ptr<Listener> listener_;
  std::vector<uint64_t> address_of_rank_;
  std::vector<std::unique_ptr<MeshLink>> links_;
  int next_peer_ = 0;    // to connect to
  int num_linked_ = 0;   // of num_ranks - 1
  int num_opening_ = 0;  // outgoing, not yet answered
  WireCounters counters_;
  int rounds_ = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_INIT_STORE_RANK_H_
