#include "comm/bench/bench_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "base/str.h"
#include "comm/bench/bench_options.h"
#include "comm/bench/bench_rank.h"
#include "comm/bench/board.h"
#include "comm/bench/join.h"
#include "comm/bench/launch.h"
#include "comm/bench/launched_rank.h"
#include "comm/rendezvous/rank_environment.h"

namespace cria::comm {
namespace {

// The flags as they were written; Finish makes the options of them.
struct Flags {
  BenchOptions options;
  std::string ops = "all_reduce";
  std::string dtypes = "float32";
  std::string redops = "sum";
  std::string min_bytes = "32M";
  std::string max_bytes;  // empty: one size
  std::string step_bytes = "1M";
  std::string buffers = "segment";
  std::string transport;
  int blocking = 1;
  std::string rank_folder;  // a rank process: where the job's files are
};

Status Finish(Flags* flags) {
  BenchOptions& options = flags->options;
  CRIA_ASSIGN_OR_RETURN(options.ops, ParseOps(flags->ops));
  CRIA_ASSIGN_OR_RETURN(options.dtypes, ParseDataTypes(flags->dtypes));
  CRIA_ASSIGN_OR_RETURN(options.redops, ParseReduceOps(flags->redops));
  CRIA_ASSIGN_OR_RETURN(options.min_bytes, ParseBytes(flags->min_bytes));
  CRIA_ASSIGN_OR_RETURN(options.max_bytes,
                        ParseBytes(flags->max_bytes.empty() ? flags->min_bytes : flags->max_bytes));
  CRIA_ASSIGN_OR_RETURN(options.step_bytes, ParseBytes(flags->step_bytes));
  if (options.max_bytes < options.min_bytes) {
    return InvalidArgumentError("-e ", flags->max_bytes, " is below -b ", flags->min_bytes);
  }
  if (options.root >= options.ranks) {
    return InvalidArgumentError("-r ", options.root, " of ", options.ranks, " ranks");
  }
  options.buffers.clear();
  if (flags->buffers != "private") options.buffers.push_back("segment");
  if (flags->buffers != "segment") options.buffers.push_back("private");
  options.blocking = flags->blocking != 0;
  if (!options.split.empty()) {
    CRIA_RETURN_IF_ERROR(SplitColor(options.split, 0).status());
    if (options.root > 0) return InvalidArgumentError("--split takes no -r: groups differ in size");
  }
  return OkStatus();
}

// A rank process gets the command line that we got, and where to find the others.
Status LaunchRanks(const Flags& flags, const std::vector<std::string>& arguments) {
  CRIA_ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::Create());
  const std::vector<std::string>& impls = flags.options.impls;
  LaunchOptions launch = {.ranks = flags.options.ranks,
                          .mpirun = std::count(impls.begin(), impls.end(), "mpi") > 0,
                          .arguments = arguments};
  launch.arguments.insert(launch.arguments.end(), {"--rank-folder", scratch.path()});
  if (!flags.transport.empty()) launch.environment["CRIA_COMM_TRANSPORT"] = flags.transport;
  CRIA_ASSIGN_OR_RETURN(const LaunchResult result, Launch(launch));
  if (!result.ok) return InternalError(result.message);
  return OkStatus();
}

void AddFlags(CLI::App* app, Flags* flags) {
  BenchOptions& options = flags->options;
  app->add_option("--impl", options.impls, "Libraries in one run: cria, mpi, gloo, with commas")
      ->delimiter(',')
      ->check(CLI::IsMember(ImplementationNames()))
      ->capture_default_str();
  app->add_option("--ranks", options.ranks,
                  "Rank processes on this machine; those of cria launch, mpirun or srun where one "
                  "started us")
      ->check(CLI::Range(1, Board::kRanksMax))
      ->capture_default_str();
  app->add_option("--op", flags->ops,
                  "all_reduce, reduce, broadcast, all_gather(_v), reduce_scatter(_v), "
                  "all_to_all(_v), gather, scatter, sendrecv, barrier; with commas, or all")
      ->capture_default_str();
  app->add_option("--buffers", flags->buffers,
                  "Of cria: in the shared segment, private (malloc), or a row for each")
      ->check(CLI::IsMember({"segment", "private", "both"}))
      ->capture_default_str();
  app->add_option("--transport", flags->transport, "Of cria: auto, or tcp also inside the host")
      ->check(CLI::IsMember({"auto", "tcp"}));
  app->add_option("--split", options.split,
                  "Groups that run at once: \"MOD 2\", \"DIV 2\", \"AND 0x1\" of the rank");
  app->add_flag("--json", options.json, "The rows as JSON, the table on standard error");
  // Those of nccl-tests.
  app->add_option("-b,--minbytes", flags->min_bytes, "The first size, such as 8, 64K, 1G")
      ->capture_default_str();
  app->add_option("-e,--maxbytes", flags->max_bytes, "The last size; default: the first");
  app->add_option("-i,--stepbytes", flags->step_bytes, "Between sizes, added")
      ->capture_default_str();
  app->add_option("-f,--stepfactor", options.step_factor, "Between sizes, multiplied; over -i")
      ->check(CLI::Range(1.0, 1e6));
  app->add_option("-n,--iters", options.iterations, "Timed rounds of a size")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app->add_option("-w,--warmup_iters", options.warmup, "Runs before them")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app->add_option("-m,--agg_iters", options.aggregate,
                  "Operations of a round; 0: as many as last half a millisecond")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app->add_option("-c,--check", options.checks, "Verifications before timing; 0: none")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app->add_option("-u,--unalign", options.unalign_bytes, "Bytes that buffers start off a line")
      ->check(CLI::Range(0, 63))
      ->capture_default_str();
  app->add_option("-a,--average", options.average, "Over ranks: 0 rank 0, 1 mean, 2 min, 3 max")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app->add_option("-z,--blocking", flags->blocking,
                  "1: wait for each operation; 0: asynchronous, wait at the end of a round")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app->add_option("-d,--datatype", flags->dtypes, "float32, bfloat16, int8, ... with commas; all")
      ->capture_default_str();
  app->add_option("-o,--redop", flags->redops, "sum, avg, min, max, prod with commas; all")
      ->capture_default_str();
  app->add_option("-r,--root", options.root, "Of rooted operations")
      ->check(CLI::Range(0, Board::kRanksMax))
      ->capture_default_str();
  app->add_option("-T,--timeout", options.timeout_s, "Seconds that a size may take")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  app->add_option("-J,--output_file", options.json_file, "The rows as JSON into a file as well");
  app->add_flag("-I,--per_iteration", options.per_iteration,
                "Time single operations too: the 99th percentile");
  app->add_option("-N,--run_cycles", options.cycles, "The whole sweep, so many times")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app->add_option("--rank-folder", flags->rank_folder)->group("");
}

// Somebody else may have started this process as a rank.
Status Run(Flags* flags, bool ranks_given, const std::vector<std::string>& arguments) {
  CRIA_ASSIGN_OR_RETURN(const RankEnvironment environment,
                        ReadRankEnvironment(ProcessEnvironment()));
  int& ranks = flags->options.ranks;
  if (environment.source != "none" && ranks_given && ranks != environment.world_size) {
    return InvalidArgumentError("--ranks ", ranks, ", but this is rank ", environment.rank, " of ",
                                environment.world_size, " that ", environment.source, " started");
  }
  if (environment.source != "none") ranks = environment.world_size;
  CRIA_RETURN_IF_ERROR(Finish(flags));
  if (!flags->rank_folder.empty()) return RunBenchRank(flags->options, flags->rank_folder);
  if (environment.source != "none") return RunLaunchedBench(environment, flags->options);
  return LaunchRanks(*flags, arguments);
}

}  // namespace

void AddBenchCommand(CLI::App* app, int* exit_code) {
  CLI::App* const command =
      app->add_subcommand("bench", "Collectives beside MPI and gloo, verified, in one run");
  const auto flags = std::make_shared<Flags>();
  AddFlags(command, flags.get());
  command->callback([command, flags, exit_code] {
    std::vector<std::string> arguments = {"bench"};
    for (const CLI::Option* option : command->get_options()) {
      if (option->count() == 0 || option->get_name() == "--help") continue;
      // Flags stand alone, everything else takes its values with commas.
      std::string values;
      for (const std::string& value : option->results()) {
        values += StrCat(values.empty() ? "" : ",", value);
      }
      arguments.push_back(option->get_name());
      if (option->get_items_expected_max() > 0) arguments.push_back(values);
    }
    const Status status = Run(flags.get(), command->count("--ranks") > 0, arguments);
    if (!status.ok()) std::fprintf(stderr, "cria comm bench: %s\n", Message(status).c_str());
    *exit_code = ExitCode(status);
  });
}

}  // namespace cria::comm
