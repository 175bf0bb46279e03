#include "comm/bench/join.h"

#include <sched.h>

#include <utility>

#include "base/file.h"
#include "base/str.h"
#include "comm/engine/world.h"
#include "comm/gloo/gloo_communicator.h"
#include "comm/mpi/mpi_communicator.h"

namespace cria::comm {
namespace {

// mpirun binds a process to a core. Threads that a library starts while this lives may run
// anywhere, as they would without mpirun.
class UnboundThreads {
 public:
  UnboundThreads() {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &all);
    saved_ = sched_getaffinity(0, sizeof(old_), &old_) == 0 &&
             sched_setaffinity(0, sizeof(all), &all) == 0;
  }
  ~UnboundThreads() {
    if (saved_) sched_setaffinity(0, sizeof(old_), &old_);
  }
  UnboundThreads(const UnboundThreads&) = delete;
  UnboundThreads& operator=(const UnboundThreads&) = delete;

 private:
  cpu_set_t old_;
  bool saved_ = false;
};

StatusOr<Joined> JoinCria(const JoinRequest& request) {
  CRIA_ASSIGN_OR_RETURN(WorldOptions options, ReadWorldOptions(ProcessEnvironment()));
  options.timeout_s = request.timeout_s;
  options.rendezvous_timeout_s = request.timeout_s;
  options.observer = request.observer;
  CRIA_ASSIGN_OR_RETURN(auto world, JoinWorld(options));
  Joined joined;
  joined.world = std::move(world);
  return joined;
}

StatusOr<Joined> JoinMpi(const JoinRequest& request) {
  CRIA_ASSIGN_OR_RETURN(auto world, JoinMpiWorld({.timeout_s = request.timeout_s,
                                                  .checked = !request.fastest,
                                                  .blocking = request.fastest,
                                                  .observer = request.observer}));
  Joined joined;
  joined.world = std::move(world);
  return joined;
}

StatusOr<Joined> JoinGloo(const JoinRequest& request) {
  const std::string folder = JoinPath(request.folder, "gloo");
  CRIA_RETURN_IF_ERROR(MakeDirs(folder));
  CRIA_ASSIGN_OR_RETURN(GlooWorld world, JoinGlooWorld({.rank = request.identity.rank,
                                                        .size = request.identity.size,
                                                        .folder = folder,
                                                        .timeout_s = request.timeout_s}));
  Joined joined;
  joined.world = std::move(world.communicator);
  joined.num_all_reduces = kNumGlooAllReduces;
  joined.choose_all_reduce = [set = std::move(world.set_all_reduce)](int index) {
    set(static_cast<GlooAllReduce>(index));
    return std::string(Name(static_cast<GlooAllReduce>(index)));
  };
  return joined;
}

}  // namespace

const std::vector<std::string>& ImplementationNames() {
  static const std::vector<std::string> names = {"cria", "mpi", "gloo"};
  return names;
}

StatusOr<Joined> JoinImplementation(const JoinRequest& request) {
  const UnboundThreads unbound;
  if (request.impl == "cria") return JoinCria(request);
  if (request.impl == "mpi") return JoinMpi(request);
  if (request.impl == "gloo") return JoinGloo(request);
  return InvalidArgumentError("no implementation \"", request.impl,
                              "\"; there are cria, mpi, gloo");
}

}  // namespace cria::comm
