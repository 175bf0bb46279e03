// The other processes of the host: how their segments come here, and how their death is noticed.
//
//   Peers peers(segment);  CRIA_RETURN_IF_ERROR(peers.Listen());
//   peers.Start(rank, rank_map);
//   CRIA_ASSIGN_OR_RETURN(Peer* peer, peers.Meet(3, [&] { return StillWaiting(); }));
//   if (peer->dead.load()) ...
//
// Who wants a peer's segment connects to its abstract unix socket and is handed the descriptor
// (SCM_RIGHTS); the connection then stays open. A thread answers such calls and watches the
// connections made from here: their end, or the end of the peer's process, is its death. Only
// processes of the same user are answered.
// Thread-safe. In a forked child everything is inert.

#ifndef CRIA_COMM_SHM_PEERS_H_
#define CRIA_COMM_SHM_PEERS_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/engine/rank_map.h"
#include "comm/shm/segment.h"

namespace cria::comm {

struct Peer {
  const Mapping* mapping = nullptr;  // of its segment
  int64_t pid = 0;
  std::atomic<bool> dead{false};

  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(mapping->base()); }
  DirectoryEntry* directory() const {
    return reinterpret_cast<DirectoryEntry*>(mapping->base() + kDirectoryOffset);
  }

  Mapping own_mapping = {};  // empty for this process itself
  int connection = -1;
  int process = -1;  // a pidfd; -1 where the kernel has none for it
};

class Peers {
 public:
  explicit Peers(Segment* segment);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Opens the socket and starts the thread.
  Status Listen();
  const std::string& socket_name() const { return socket_name_; }
  void Start(int world_rank, std::shared_ptr<const RankMap> rank_map);
  int world_rank() const { return world_rank_; }
  const RankMap& rank_map() const { return *rank_map_; }

  // The peer, after the first contact if need be; lives as long as this. `keep_waiting` is asked
  // now and then and ends the wait with its error. Unavailable when nobody answers any more.
  StatusOr<Peer*> Meet(int world_rank, const std::function<Status()>& keep_waiting)
      CRIA_EXCLUDES(mu_);
  // The peer if it was met; nullptr otherwise.
  Peer* Find(int world_rank) const CRIA_EXCLUDES(mu_);

 private:
  StatusOr<std::unique_ptr<Peer>> Connect(int world_rank,
                                          const std::function<Status()>& keep_waiting);
  Status Greet(Peer* peer, int world_rank, const std::function<Status()>& keep_waiting);
  void WatchPeer(Peer* peer);
  void RunThread();
  void Accept();

  // Constant after Listen and Start.
  Segment* const segment_;
  std::string socket_name_;
  int listener_ = -1;
  int epoll_ = -1;
  int stop_ = -1;  // an eventfd
  int world_rank_ = -1;
  std::shared_ptr<const RankMap> rank_map_;

  mutable Mutex mu_;
  std::map<int, std::unique_ptr<Peer>> peers_ CRIA_GUARDED_BY(mu_);
  std::set<int> accepted_;  // of the thread alone
  std::unique_ptr<std::thread> thread_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_SHM_PEERS_H_
