#include "comm/engine/world.h"

#include <unistd.h>

#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "base/str.h"
#include "comm/engine/cria_communicator.h"
#include "comm/engine/job.h"
#include "comm/net/interfaces.h"
#include "comm/rendezvous/rendezvous.h"

namespace cria::comm {
namespace {

// Numbers the hosts of the map in order of first appearance.
std::vector<int> HostsOf(const RankMap& rank_map) {
  std::unordered_map<std::string, int> number;
  std::vector<int> hosts;
  for (const RankInfo& info : rank_map) {
    hosts.push_back(number.emplace(info.host, static_cast<int>(number.size())).first->second);
  }
  return hosts;
}

StatusOr<double> ParsePositive(const std::string& variable, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0) || value > 1e9) {
    return InvalidArgumentError(variable, "=\"", text, "\" is no number above 0");
  }
  return value;
}

}  // namespace

StatusOr<WorldOptions> ReadWorldOptions(const EnvironmentVariables& variables) {
  WorldOptions options;
  CRIA_ASSIGN_OR_RETURN(options.environment, ReadRankEnvironment(variables));
  const auto value = [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
  auto algorithms = ParseAlgorithmOverrides(value("CRIA_COMM_ALGO"));
  if (!algorithms.ok()) return Annotate(algorithms.status(), "CRIA_COMM_ALGO");
  options.algorithms = *std::move(algorithms);
  if (const std::string transport = value("CRIA_COMM_TRANSPORT"); transport == "tcp") {
    options.transport = TransportChoice::kTcp;
  } else if (!transport.empty() && transport != "auto") {
    return InvalidArgumentError("CRIA_COMM_TRANSPORT=\"", transport, "\" is none of auto, tcp");
  }
  options.interface = value("CRIA_COMM_INTERFACE");
  options.host = value("CRIA_COMM_HOST");
  if (const std::string text = value("CRIA_COMM_TIMEOUT_S"); !text.empty()) {
    CRIA_ASSIGN_OR_RETURN(options.timeout_s, ParsePositive("CRIA_COMM_TIMEOUT_S", text));
    options.rendezvous_timeout_s = options.timeout_s;
  }
  if (const std::string text = value("CRIA_COMM_TCP_STREAMS"); !text.empty()) {
    CRIA_ASSIGN_OR_RETURN(const double streams, ParsePositive("CRIA_COMM_TCP_STREAMS", text));
    if (streams > 64 || streams != static_cast<int>(streams)) {
      return InvalidArgumentError("CRIA_COMM_TCP_STREAMS=\"", text, "\" is none of 1 to 64");
    }
    options.tcp_streams = static_cast<int>(streams);
  }
  return options;
}

StatusOr<std::unique_ptr<Communicator>> JoinWorld(const WorldOptions& options) {
  const RankEnvironment& environment = options.environment;
  auto job = std::make_shared<Job>();
  job->world_rank = environment.rank;
  job->tcp_only = options.transport == TransportChoice::kTcp;
  job->algorithms = options.algorithms;
  job->observer = options.observer;
  job->step_hook = options.step_hook;
  CRIA_ASSIGN_OR_RETURN(job->shm, ShmDomain::Create({.segment_bytes = options.shm_segment_bytes}));
  RankInfo mine{.host = options.host.empty() ? HostIdentity() : options.host,
                .shm_socket = job->shm->socket_name(),
                .pid = static_cast<int64_t>(getpid())};
  if (environment.world_size > 1) {
    CRIA_ASSIGN_OR_RETURN(
        const std::string address,
        ChooseAddress(options.interface, environment.master_address, environment.master_port));
    CRIA_ASSIGN_OR_RETURN(job->tcp,
                          TcpDomain::Create({.address = address, .streams = options.tcp_streams}));
    mine.address = job->tcp->address();
    mine.port = job->tcp->port();
  }
  CRIA_ASSIGN_OR_RETURN(
      RankMap rank_map,
      GatherRankMap(environment, mine, {.timeout_s = options.rendezvous_timeout_s}));
  job->rank_map = std::make_shared<const RankMap>(std::move(rank_map));
  job->topology = options.topology;
  job->topology.host_of_rank = HostsOf(*job->rank_map);
  job->shm->Start(environment.rank, job->rank_map);
  if (job->tcp != nullptr) job->tcp->Start(environment.rank, job->rank_map);
  std::vector<int> ranks;
  for (int r = 0; r < environment.world_size; ++r) ranks.push_back(r);
  return CriaCommunicator::Create(
      std::move(job),
      {.name = options.name, .world_ranks = std::move(ranks), .timeout_s = options.timeout_s});
}

}  // namespace cria::comm
