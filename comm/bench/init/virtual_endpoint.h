// What a worker of the init benchmark runs thousands of: a rank of some scheme, on an event loop.

#ifndef CRIA_COMM_BENCH_INIT_VIRTUAL_ENDPOINT_H_
#define CRIA_COMM_BENCH_INIT_VIRTUAL_ENDPOINT_H_

#include <string>

#include "comm/bench/init/mesh_groups.h"
#include "comm/bench/init/virtual_board.h"
#include "comm/net/address.h"
#include "comm/rendezvous/frame_socket.h"

namespace cria::comm {

// What all ranks of a run know; written before it starts.
struct VirtualJob {
  int num_ranks = 0;
  int num_groups = 0;
  int ranks_per_host = 8;
  Mesh mesh = {};
  SocketAddress master = {};  // of the rendezvous, or the store
  double timeout_s = 60;
  std::string run_name = {};  // in the names of the Unix sockets
  VirtualBoard* board = nullptr;
};

// Counts itself in VirtualBoard::num_with_map and num_done; errors go to VirtualBoard::Fail.
// Thread-compatible: lives on its loop's thread.
class VirtualEndpoint {
 public:
  virtual ~VirtualEndpoint() = default;
  virtual void Start() = 0;
  // The service that it asks has answered.
  virtual bool placed() const = 0;
  virtual WireCounters counters() const = 0;
  // Messages that this rank waited for one after another; 0 before it is done.
  virtual int rounds() const = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_INIT_VIRTUAL_ENDPOINT_H_
