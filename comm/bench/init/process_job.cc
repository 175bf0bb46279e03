#include "comm/bench/init/process_job.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/clock.h"
#include "base/file.h"
#include "comm/bench/board.h"
#include "comm/bench/join.h"
#include "comm/bench/launch.h"

namespace cria::comm {
namespace {

constexpr std::string_view kLineStart = "init-rank-times ";
constexpr size_t kLastWordsBytesMax = 400;

// The lines "init-rank-times START END" of all ranks.
StatusOr<InitSample> ReadTimes(const std::string& text, int num_ranks) {
  double first_s = 0;
  double last_s = 0;
  int num_lines = 0;
  for (size_t at = text.find(kLineStart); at != std::string::npos;
       at = text.find(kLineStart, at + 1)) {
    char* end = nullptr;
    const double start_s = std::strtod(text.c_str() + at + kLineStart.size(), &end);
    const double end_s = std::strtod(end, nullptr);
    first_s = num_lines == 0 ? start_s : std::min(first_s, start_s);
    last_s = num_lines == 0 ? end_s : std::max(last_s, end_s);
    ++num_lines;
  }
  if (num_lines != num_ranks) {
    return InternalError(num_lines, " of ", num_ranks,
                         " ranks told their times: ", text.substr(0, kLastWordsBytesMax));
  }
  InitSample sample;
  sample.seconds = last_s - first_s;
  sample.processes = num_ranks;
  return sample;
}

}  // namespace

Status RunInitRank(const std::string& impl, const std::string& folder, double limit_s) {
  CRIA_ASSIGN_OR_RETURN(const RankIdentity identity, PrepareRank());
  CRIA_ASSIGN_OR_RETURN(
      Board board, Board::Open(JoinPath(folder, "board"), identity.rank, identity.size, limit_s));
  CRIA_RETURN_IF_ERROR(board.Barrier());
  const double start_s = RealClock()->MonotonicSeconds();
  CRIA_ASSIGN_OR_RETURN(
      const Joined joined,
      JoinImplementation(
          {.impl = impl, .identity = identity, .folder = folder, .timeout_s = limit_s}));
  const double end_s = RealClock()->MonotonicSeconds();
  std::printf("%s%.9f %.9f\n", std::string(kLineStart).c_str(), start_s, end_s);
  std::fflush(stdout);
  // Nobody leaves while others are still on their way in.
  return board.Barrier();
}

StatusOr<InitSample> RunProcessJob(const ProcessJobOptions& options) {
  if (options.num_ranks > Board::kRanksMax) {
    return ResourceExhaustedError("at most ", Board::kRanksMax, " processes are started");
  }
  CRIA_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::Create());
  CRIA_ASSIGN_OR_RETURN(
      const LaunchResult result,
      Launch({.ranks = options.num_ranks,
              .mpirun = options.impl == "mpi",
              .arguments = {"init-bench", kInitRankFolderFlag, scratch.path(), kInitRankImplFlag,
                            options.impl, "--limit", StrCat(options.limit_s)},
              .environment = {},
              .limit_s = options.limit_s,
              .capture = true}));
  if (result.timed_out) {
    return DeadlineExceededError(options.num_ranks, " processes: not done after ", options.limit_s,
                                 " s");
  }
  if (!result.ok) {
    return InternalError(result.message, ": ", result.text.substr(0, kLastWordsBytesMax));
  }
  return ReadTimes(result.text, options.num_ranks);
}

}  // namespace cria::comm
