#include "comm/bench/abort/abort_bench.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "base/str.h"
#include "comm/bench/abort/abort_rank.h"
#include "comm/bench/board.h"
#include "comm/bench/launch.h"

namespace cria::comm {
namespace {

struct Flags {
  std::vector<int> ranks = {2, 4, 8};
  std::vector<std::string> transports = {"auto", "tcp"};
  AbortTrials trials;
  bool json = false;
  std::string rank_folder = {};  // a rank process: where the job's files are
};

// One job; its rows, as JSON.
StatusOr<Json> RunJob(const Flags& flags, int ranks, const std::string& transport) {
  CRIA_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::Create());
  LaunchOptions launch = {
      .ranks = ranks,
      .arguments = {"abort-bench", "--trials", StrCat(flags.trials.trials), "--bytes",
                    StrCat(flags.trials.bytes), "--rank-folder", scratch.path()}};
  launch.environment["CRIA_COMM_TRANSPORT"] = transport;
  CRIA_ASSIGN_OR_RETURN(const LaunchResult result, Launch(launch));
  if (!result.ok) return InternalError(result.message);
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(AbortRowsPath(scratch.path())));
  return ParseJson(text, "the ranks' rows");
}

Status RunJobs(const Flags& flags) {
  std::FILE* const out = flags.json ? stderr : stdout;
  std::fprintf(out,
               "# from Abort to the end of a wait for a rank that stays away; %u cores, %d aborts "
               "a row\n# %5s %9s %-16s %7s %10s %12s\n",
               std::thread::hardware_concurrency(), flags.trials.trials, "ranks", "transport",
               "operation", "waits", "median ms", "greatest ms");
  Json all = Json::array();
  int64_t waits = 0;
  double greatest_ms = 0;
  for (const int ranks : flags.ranks) {
    for (const std::string& transport : flags.transports) {
      CRIA_ASSIGN_OR_RETURN(const Json rows, RunJob(flags, ranks, transport));
      for (Json row : rows) {
        std::fprintf(out, "  %5d %9s %-16s %7lld %10.3f %12.3f\n", ranks, transport.c_str(),
                     row["op"].get<std::string>().c_str(), row["waits"].get<long long>(),
                     row["median_ms"].get<double>(), row["greatest_ms"].get<double>());
        waits += row["waits"].get<int64_t>();
        greatest_ms = std::max(greatest_ms, row["greatest_ms"].get<double>());
        row["ranks"] = ranks;
        row["transport"] = transport;
        all.push_back(row);
      }
      std::fflush(out);
    }
  }
  std::fprintf(out, "# greatest of %lld waits: %.1f ms\n", static_cast<long long>(waits),
               greatest_ms);
  if (!flags.json) return OkStatus();
  CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(all, 1));
  std::printf("%s\n", text.c_str());
  return OkStatus();
}

}  // namespace

void AddAbortBenchCommand(CLI::App* app, int* exit_code) {
  CLI::App* const command =
      app->add_subcommand("abort-bench", "How long waits go on after an abort");
  const auto flags = std::make_shared<Flags>();
  command->add_option("--ranks", flags->ranks, "Rank processes on this machine, with commas")
      ->delimiter(',')
      ->check(CLI::Range(2, Board::kRanksMax))
      ->capture_default_str();
  command
      ->add_option("--transport", flags->transports,
                   "auto (shared memory inside the host), tcp, with commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"auto", "tcp"}))
      ->capture_default_str();
  command->add_option("--trials", flags->trials.trials, "Aborts of each operation")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--bytes", flags->trials.bytes, "Of a rank's buffer, or of a part of it")
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 30))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "The rows as JSON, the table on standard error");
  command->add_option("--rank-folder", flags->rank_folder)->group("");
  command->callback([flags, exit_code] {
    const Status status = flags->rank_folder.empty()
                              ? RunJobs(*flags)
                              : RunAbortRank(flags->trials, flags->rank_folder);
    if (!status.ok()) std::fprintf(stderr, "cria comm abort-bench: %s\n", Message(status).c_str());
    *exit_code = ExitCode(status);
  });
}

}  // namespace cria::comm
