#include "comm/bench/launched_rank.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "base/file.h"
#include "comm/bench/bench_rank.h"
#include "comm/bench/board.h"
#include "comm/bench/launch.h"
#include "comm/engine/world.h"

namespace cria::comm {
namespace {

// Rank 0's folder, on all ranks.
StatusOr<std::string> ShareFolder(const std::string& mine, double timeout_s) {
  CRIA_ASSIGN_OR_RETURN(WorldOptions options, ReadWorldOptions(ProcessEnvironment()));
  options.timeout_s = timeout_s;
  options.rendezvous_timeout_s = timeout_s;
  CRIA_ASSIGN_OR_RETURN(const auto world, JoinWorld(options));
  std::array<char, 4096> path = {};
  if (mine.size() >= path.size()) return InvalidArgumentError("too long a path: ", mine);
  std::copy(mine.begin(), mine.end(), path.begin());
  CRIA_RETURN_IF_ERROR(world
                           ->Broadcast({.buffer = path.data(),
                                        .count = static_cast<int64_t>(path.size()),
                                        .dtype = DataType::kUint8})
                           .Wait());
  return std::string(path.data());
}

}  // namespace

Status RunLaunchedBench(const RankEnvironment& environment, const BenchOptions& options) {
  if (environment.local_size > 0 && environment.local_size != environment.world_size) {
    return InvalidArgumentError("the ranks of a benchmark share a host; here are ",
                                environment.local_size, " of ", environment.world_size);
  }
  if (std::count(options.impls.begin(), options.impls.end(), "mpi") > 0 &&
      environment.source != "openmpi") {
    return InvalidArgumentError("--impl mpi: ranks that ", environment.source,
                                " started cannot use MPI; mpirun's can");
  }
  std::optional<ScratchFolder> scratch;  // removed last, after RunBenchRank's last barrier
  if (environment.rank == 0) {
    CRIA_ASSIGN_OR_RETURN(ScratchFolder made, ScratchFolder::Create());
    scratch.emplace(std::move(made));
  }
  CRIA_ASSIGN_OR_RETURN(const std::string folder,
                        ShareFolder(scratch ? scratch->path() : "", options.timeout_s));
  {
    // Nobody joins anew at that port before all have left.
    CRIA_ASSIGN_OR_RETURN(Board board, Board::Open(JoinPath(folder, "meeting"), environment.rank,
                                                   environment.world_size, options.timeout_s));
    CRIA_RETURN_IF_ERROR(board.Barrier());
  }
  return RunBenchRank(options, folder);
}

}  // namespace cria::comm
