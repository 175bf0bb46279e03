// Joins a job: environment, domains, rendezvous, the communicator of all ranks.
//
//   CRIA_ASSIGN_OR_RETURN(RankEnvironment environment, ReadRankEnvironment(ProcessEnvironment()));
//   CRIA_ASSIGN_OR_RETURN(auto world, JoinWorld({.environment = environment}));
//   world->AllReduce({...});
//
// Shared memory inside a host, TCP between hosts. Several ranks may live in one process (threads in
// tests): nothing is global. Groups made of the world keep its domains alive.
// Thread-safe. Errors: those of the rendezvous and of the domains.

#ifndef CRIA_COMM_ENGINE_WORLD_H_
#define CRIA_COMM_ENGINE_WORLD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "comm/engine/transport.h"
#include "comm/plan/group_topology.h"
#include "comm/plan/planner.h"
#include "comm/rendezvous/rank_environment.h"
#include "debug/observer.h"

namespace cria::comm {

enum class TransportChoice : uint8_t { kAuto, kTcp };

struct WorldOptions {
  RankEnvironment environment = {};
  std::string name = "world";
  double timeout_s = 300;  // of operations that name none
  double rendezvous_timeout_s = 300;
  TransportChoice transport = TransportChoice::kAuto;
  AlgorithmOverrides algorithms = {};
  // The interface of TCP: a name ("eth0"), a CIDR ("10.0.0.0/8"), or empty: the one that reaches
  // the master.
  std::string interface = {};
  int tcp_streams = 1;
  // Address space of this rank's segment, which each peer on its host maps; memory is used as it is
  // touched. The most that Allocate gives.
  int64_t shm_segment_bytes = int64_t{64} << 30;
  // Link costs and tiers; host_of_rank is filled from the rank map.
  GroupTopology topology = {};
  // Overrides HostIdentity(), so that one machine can play several.
  std::string host = {};
  debug::Observer* observer = nullptr;  // may be null; outlives the communicators
  StepHook step_hook = nullptr;         // for tests (engine/transport.h)
};

// The options with what the environment says: CRIA_COMM_ALGO, CRIA_COMM_TRANSPORT (auto, tcp),
// CRIA_COMM_INTERFACE, CRIA_COMM_TCP_STREAMS, CRIA_COMM_TIMEOUT_S, CRIA_COMM_HOST. InvalidArgument
// names the variable and the value.
StatusOr<WorldOptions> ReadWorldOptions(const EnvironmentVariables& variables);

StatusOr<std::unique_ptr<Communicator>> JoinWorld(const WorldOptions& options);

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_WORLD_H_
