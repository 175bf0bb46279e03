#include "trainer/launch/launch_environment.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "comm/net/free_port.h"

namespace cria::trainer {
namespace {

constexpr int kTorchrunPort = 29500;

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
      CRIA_ASSIGN_OR_RETURN(job.master_port, comm::FreePort());
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
