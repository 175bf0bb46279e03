#include "trainer/launch/launch_environment.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/hash.h"
#include "comm/net/fd.h"

namespace cria::trainer {
namespace {

constexpr int kTorchrunPort = 29500;

bool IsFree(int port) {
  const comm::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return fd.valid() &&
         bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// A port that nobody has: below those that the kernel gives away, to one of this very job's sockets
// as well, before rank 0 takes it. Launchers that start at one moment look at different ones first.
StatusOr<int> FreePort() {
  constexpr int kFirst = 10'000, kNumPorts = 20'000;
  const uint64_t start = Hash64(StrCat(getpid(), " ", RealClock()->UnixSeconds()));
  for (uint64_t i = 0; i < kNumPorts; ++i) {
    const int port = kFirst + static_cast<int>((start + i) % kNumPorts);
    if (IsFree(port)) return port;
  }
  return ResourceExhaustedError("no free port in [", kFirst, ", ", kFirst + kNumPorts,
                                "); choose one: --master-port");
}

Status CheckOptions(const LaunchOptions& options) {
  if (options.command.empty()) return InvalidArgumentError("no command to launch");
  if (options.ranks < 1 || options.ranks > kLocalRanksMax) {
    return InvalidArgumentError("-n ", options.ranks, ": expected 1 to ", kLocalRanksMax, " ranks");
  }
  if (options.num_nodes < 1 || options.num_nodes > comm::kWorldSizeMax / options.ranks) {
    return InvalidArgumentError("--nnodes ", options.num_nodes, ": expected 1 to ",
                                comm::kWorldSizeMax / options.ranks, " machines of ", options.ranks,
                                " ranks");
  }
  if (options.node_rank < 0 || options.node_rank >= options.num_nodes) {
    return InvalidArgumentError("--node-rank ", options.node_rank, " is not below --nnodes ",
                                options.num_nodes);
  }
  if (options.num_nodes > 1 && options.master_address.empty()) {
    return InvalidArgumentError("--nnodes ", options.num_nodes,
                                " needs --master-addr: the machine of node rank 0");
  }
  if (options.master_port < 0 || options.master_port > 65535) {
    return InvalidArgumentError("--master-port ", options.master_port, ": no port");
  }
  if (!(options.grace_s >= 0)) return InvalidArgumentError("--grace ", options.grace_s);
  return OkStatus();
}

}  // namespace

StatusOr<LaunchOptions> ResolveLaunch(const LaunchOptions& options) {
  CRIA_RETURN_IF_ERROR(CheckOptions(options));
  LaunchOptions job = options;
  const bool alone = job.num_nodes == 1;
  if (job.master_address.empty()) job.master_address = "127.0.0.1";
  if (job.master_port == 0) {
    job.master_port = kTorchrunPort;
    if (alone) {
      CRIA_ASSIGN_OR_RETURN(job.master_port, FreePort());
    }
  }
  if (job.run_id.empty()) {
    const auto now_us = static_cast<int64_t>(RealClock()->UnixSeconds() * 1e6);
    job.run_id = alone ? StrCat("cria-", getpid(), "-", now_us) : "none";
  }
  return job;
}

comm::EnvironmentVariables EnvironmentOfRank(const LaunchOptions& job, int local_rank, int cores,
                                             const comm::EnvironmentVariables& ours) {
  const std::string rank = StrCat(job.node_rank * job.ranks + local_rank);
  const std::string world_size = StrCat(job.num_nodes * job.ranks);
  comm::EnvironmentVariables all = {
      {"RANK", rank},
      {"WORLD_SIZE", world_size},
      {"LOCAL_RANK", StrCat(local_rank)},
      {"LOCAL_WORLD_SIZE", StrCat(job.ranks)},
      {"GROUP_RANK", StrCat(job.node_rank)},
      {"GROUP_WORLD_SIZE", StrCat(job.num_nodes)},
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", rank},
      {"ROLE_WORLD_SIZE", world_size},
      {"MASTER_ADDR", job.master_address},
      {"MASTER_PORT", StrCat(job.master_port)},
      {"TORCHELASTIC_RUN_ID", job.run_id},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      // We may stand inside an allocation of Slurm's or under mpirun, whose variables say other
      // ranks.
      {"CRIA_COMM_LAUNCHER", "torchrun"},
  };
  all.insert(ours.begin(), ours.end());  // what is there stays
  const std::string threads = StrCat(std::max(1, cores / job.ranks));
  for (const char* name : {"OMP_NUM_THREADS", "CRIA_THREADS"}) all.emplace(name, threads);
  return all;
}

}  // namespace cria::trainer
