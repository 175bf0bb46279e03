#include "comm/bench/init/init_bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/json.h"
#include "base/status.h"
#include "base/str.h"
#include "comm/bench/init/mesh_groups.h"
#include "comm/bench/init/process_job.h"
#include "comm/bench/init/sample.h"
#include "comm/bench/init/virtual_job.h"

namespace cria::comm {
namespace {

struct Flags {
  int ranks = 8192;
  int groups = 8;
  int ranks_per_host = 8;
  int degree = 32;
  int repeats = 3;
  double limit_s = 10;
  std::string scheme = "cria";
  bool curve = false;
  bool json = false;
  std::string rank_folder = {};  // a rank process: where the job's files are
  std::string rank_impl = {};
};

// A way to start a job, with the ranks it is tried with.
struct Scheme {
  std::string name;
  std::string what;
  std::vector<int> ranks;
  bool virtual_ranks = false;
  std::function<StatusOr<InitSample>(int ranks)> run;
};

struct Row {
  int ranks = 0;
  InitSample sample;
};

struct Curve {
  const Scheme* scheme = nullptr;
  std::vector<Row> rows;
  std::string stopped = {};  // why there are no more rows; empty: they are all there
  bool failed = false;       // for another reason than the limit
};

// first, 2 first, 4 first ... up to `last`; only `last` without a curve.
std::vector<int> Points(int first, int last, bool curve) {
  std::vector<int> points;
  for (int ranks = first; curve && ranks < last; ranks *= 2) points.push_back(ranks);
  points.push_back(last);
  return points;
}

std::vector<Scheme> Schemes(const Flags& flags) {
  constexpr int kProcessesMax = 64;
  std::vector<Scheme> schemes;
  const auto wanted = [&flags](const std::string& name) {
    return flags.scheme == "all" || flags.scheme == name;
  };
  const auto add_virtual = [&](const std::string& name, InitScheme scheme, const char* what) {
    if (!wanted(name)) return;
    schemes.push_back({.name = name,
                       .what = what,
                       .ranks = Points(64, flags.ranks, flags.curve),
                       .virtual_ranks = true,
                       .run = [flags, scheme](int ranks) {
                         return RunVirtualJob({.scheme = scheme,
                                               .num_ranks = ranks,
                                               .num_groups = flags.groups,
                                               .ranks_per_host = flags.ranks_per_host,
                                               .degree = flags.degree,
                                               .timeout_s = flags.limit_s});
                       }});
  };
  const auto add_processes = [&](const std::string& impl, const char* what) {
    if (!wanted(impl + "-processes")) return;
    schemes.push_back({.name = impl + "-processes",
                       .what = what,
                       .ranks = Points(2, std::min(flags.ranks, kProcessesMax), flags.curve),
                       .virtual_ranks = false,
                       .run = [flags, impl](int ranks) {
                         return RunProcessJob(
                             {.impl = impl, .num_ranks = ranks, .limit_s = flags.limit_s});
                       }});
  };
  add_virtual(
      "cria", InitScheme::kCria,
      "rendezvous over a tree, groups from the mesh, a connection to each group's neighbour");
  add_virtual(
      "store", InitScheme::kStore,
      "a single-threaded store, a full mesh of connections, a world barrier for each group");
  add_processes("cria", "JoinWorld of processes");
  add_processes("gloo", "gloo's connectFullMesh of processes, over its FileStore");
  add_processes("mpi", "MPI_Init of processes under mpirun");
  return schemes;
}

// The median of some runs by time.
StatusOr<InitSample> Median(const Scheme& scheme, int ranks, int repeats) {
  std::vector<InitSample> samples;
  for (int i = 0; i < repeats; ++i) {
    CRIA_ASSIGN_OR_RETURN(InitSample sample, scheme.run(ranks));
    samples.push_back(sample);
  }
  std::sort(samples.begin(), samples.end(),
            [](const InitSample& a, const InitSample& b) { return a.seconds < b.seconds; });
  return samples[samples.size() / 2];
}

double Exponent(const Curve& curve) {
  std::vector<std::pair<double, double>> points;
  for (const Row& row : curve.rows) points.emplace_back(row.ranks, row.sample.seconds);
  return FitExponent(points);
}

void PrintHeader(const Scheme& scheme) {
  std::printf("\n# %s: %s\n", scheme.name.c_str(), scheme.what.c_str());
  std::printf("%8s %9s %9s %9s %9s %7s %9s %10s %10s %10s %10s\n", "ranks", "seconds", "map s",
              "cpu s", "us/rank", "rounds", "connects", "messages", "MB", "map KB", "processes");
}

void PrintRow(const Row& row) {
  const InitSample& s = row.sample;
  std::printf("%8d %9.3f %9.3f %9.3f %9.1f %7d %9lld %10lld %10.1f %10.1f %10d\n", row.ranks,
              s.seconds, s.map_seconds, s.cpu_seconds, 1e6 * s.seconds / row.ranks, s.rounds,
              static_cast<long long>(s.connections), static_cast<long long>(s.messages),
              1e-6 * static_cast<double>(s.bytes), 1e-3 * static_cast<double>(s.map_bytes),
              s.processes);
  std::fflush(stdout);
}

void PrintTail(const Curve& curve) {
  if (!curve.stopped.empty()) std::printf("stopped: %s\n", curve.stopped.c_str());
  if (curve.rows.size() > 1) {
    std::printf("seconds grow with ranks^%.2f from %d to %d ranks\n", Exponent(curve),
                curve.rows.front().ranks, curve.rows.back().ranks);
  }
  if (!curve.rows.empty() && curve.rows.back().sample.decode_seconds > 0) {
    std::printf("a rank decodes the map of %d in %.1f ms, here once a process\n",
                curve.rows.back().ranks, 1e3 * curve.rows.back().sample.decode_seconds);
  }
}

Curve Measure(const Scheme& scheme, const Flags& flags) {
  Curve curve = {.scheme = &scheme, .rows = {}};
  if (!flags.json) PrintHeader(scheme);
  for (const int ranks : scheme.ranks) {
    const auto sample = Median(scheme, ranks, flags.repeats);
    if (!sample.ok()) {
      curve.stopped = StrCat(ranks, " ranks: ", Message(sample.status()));
      curve.failed = sample.status().code() != StatusCode::kDeadlineExceeded &&
                     sample.status().code() != StatusCode::kResourceExhausted;
      break;
    }
    curve.rows.push_back({.ranks = ranks, .sample = *sample});
    if (!flags.json) PrintRow(curve.rows.back());
  }
  if (!flags.json) PrintTail(curve);
  return curve;
}

Json ToJson(const Flags& flags, const std::vector<Curve>& curves) {
  Json out = Json::object();
  out["groups"] = flags.groups;
  out["limit_s"] = flags.limit_s;
  out["curves"] = Json::array();
  out["rows"] = Json::array();
  for (const Curve& curve : curves) {
    const double exponent = curve.rows.size() > 1 ? Exponent(curve) : 0;
    Json one = {{"scheme", curve.scheme->name}, {"exponent", exponent}};
    one["ranks_max"] = curve.rows.empty() ? 0 : curve.rows.back().ranks;
    one["stopped"] = curve.stopped;
    out["curves"].push_back(std::move(one));
    for (const Row& row : curve.rows) {
      const InitSample& s = row.sample;
      out["rows"].push_back({{"scheme", curve.scheme->name},
                             {"ranks", row.ranks},
                             {"groups", curve.scheme->virtual_ranks ? flags.groups : 0},
                             {"seconds", s.seconds},
                             {"map_seconds", s.map_seconds},
                             {"cpu_seconds", s.cpu_seconds},
                             {"exponent", exponent},
                             {"rounds", s.rounds},
                             {"connections", s.connections},
                             {"messages", s.messages},
                             {"bytes", s.bytes},
                             {"map_bytes", s.map_bytes},
                             {"processes", s.processes}});
    }
  }
  return out;
}

int Run(const Flags& flags) {
  if (!flags.rank_folder.empty()) {
    const Status status = RunInitRank(flags.rank_impl, flags.rank_folder, flags.limit_s);
    if (!status.ok()) std::fprintf(stderr, "init-bench: %s\n", Message(status).c_str());
    // The libraries' own farewells are not what is measured, and some take long.
    if (status.ok() && flags.rank_impl != "mpi") _exit(0);
    return ExitCode(status);
  }
  if (!flags.json) {
    std::printf(
        "# %d groups a rank, mesh of %d ranks: %s; %d ranks a host; median of %d runs; "
        "limit %g s\n",
        flags.groups, flags.ranks, Describe(MeshOf(flags.ranks)).c_str(), flags.ranks_per_host,
        flags.repeats, flags.limit_s);
  }
  const std::vector<Scheme> schemes = Schemes(flags);
  std::vector<Curve> curves;
  bool failed = false;
  for (const Scheme& scheme : schemes) {
    curves.push_back(Measure(scheme, flags));
    failed = failed || curves.back().failed;
  }
  if (flags.json) {
    const auto text = DumpJson(ToJson(flags, curves), 2);
    std::printf("%s\n", text.ok() ? text->c_str() : "{}");
  }
  for (const Curve& curve : curves) {
    if (!curve.failed) continue;
    std::fprintf(stderr, "init-bench: %s: %s\n", curve.scheme->name.c_str(), curve.stopped.c_str());
  }
  return failed ? 1 : 0;
}

}  // namespace

void AddInitBenchCommand(CLI::App* app, int* exit_code) {
  CLI::App* command = app->add_subcommand(
      "init-bench", "How long a job of many ranks takes to start, beside other schemes");
  auto flags = std::make_shared<Flags>();
  command->add_option("--ranks", flags->ranks, "Ranks; with --curve the last point")
      ->check(CLI::Range(1, 1 << 17))
      ->capture_default_str();
  command->add_option("--groups", flags->groups, "Groups that each rank belongs to")
      ->check(CLI::Range(0, kMeshGroupsMax))
      ->capture_default_str();
  command
      ->add_option("--scheme", flags->scheme,
                   "cria or store (virtual ranks), cria-processes, gloo-processes, mpi-processes "
                   "(at most 64), or all")
      ->check(CLI::IsMember(
          {"cria", "store", "cria-processes", "gloo-processes", "mpi-processes", "all"}))
      ->capture_default_str();
  command->add_flag("--curve", flags->curve,
                    "Also 64, 128, ... (processes: 2, 4, ...) ranks, and the exponent");
  command->add_option("--ranks-per-host", flags->ranks_per_host, "Virtual ranks that share a host")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--degree", flags->degree, "Of the rendezvous tree")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  command->add_option("--repeats", flags->repeats, "Runs of each point")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--limit", flags->limit_s, "Seconds that one run may take; larger ones stop")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print JSON");
  command->add_option(kInitRankFolderFlag, flags->rank_folder)->group("");
  command->add_option(kInitRankImplFlag, flags->rank_impl)->group("");
  command->callback([flags, exit_code] { *exit_code = Run(*flags); });
}

}  // namespace cria::comm
