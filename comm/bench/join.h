// One way into every library: the world of "cria", "mpi" or "gloo" in a rank process that Launch
// started.
//
//   CRIA_ASSIGN_OR_RETURN(Joined joined, JoinImplementation({.impl = "gloo", .folder = scratch,
//                                                            .identity = identity}));
//   joined.world->AllReduce({...});
//
// Thread-compatible.

#ifndef CRIA_COMM_BENCH_JOIN_H_
#define CRIA_COMM_BENCH_JOIN_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "comm/bench/launch.h"
#include "debug/observer.h"

namespace cria::comm {

// "cria", "mpi", "gloo".
const std::vector<std::string>& ImplementationNames();

struct JoinRequest {
  std::string impl;
  RankIdentity identity = {};
  std::string folder = {};  // the job's scratch folder, for gloo's store
  double timeout_s = 300;
  // Each library as fast as it is: MPI's blocking calls without our checks, for measuring.
  bool fastest = false;
  debug::Observer* observer = nullptr;  // of cria and mpi; may be null
};

struct Joined {
  std::unique_ptr<Communicator> world;
  // Chooses among a library's all-reduces, where it leaves that to its user (gloo); the number of
  // them, 0 elsewhere.
  int num_all_reduces = 0;
  std::function<std::string(int)> choose_all_reduce = {};  // returns the name
};

StatusOr<Joined> JoinImplementation(const JoinRequest& request);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_JOIN_H_
