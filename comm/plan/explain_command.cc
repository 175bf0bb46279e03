#include "comm/plan/explain_command.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "base/topology.h"
#include "comm/plan/cluster_topology.h"
#include "comm/plan/count_cost.h"
#include "comm/plan/explain.h"
#include "comm/plan/interpreter.h"

namespace cria::comm {
namespace {

constexpr int kRanksMax = 1 << 17;
// Counting and checking build the plans of all ranks.
constexpr int kCheckRanksMax = 256;
constexpr int64_t kCheckElementsMax = int64_t{1} << 24;  // of all buffers of all ranks

struct Flags {
  std::string op = "all_reduce";
  std::string bytes = "1M";
  std::string dtype = "float32";
  std::string redop = "sum";
  std::string cluster = "laptop";
  std::string algorithms;
  int ranks = 2;
  int hosts = 0;
  int root = 0;
  int rank = 0;
  bool deal = false;
  bool tcp_only = false;
  bool check = false;
  bool json = false;
};

// "64M", "1KiB", "8".
StatusOr<int64_t> ParseByteCount(const std::string& text) {
  size_t used = 0;
  double number = -1;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    return InvalidArgumentError("--bytes ", text, " is no number");
  }
  std::string unit = text.substr(used);
  if (unit.size() > 1 && unit.ends_with("B")) unit.pop_back();
  if (unit.size() > 1 && unit.ends_with("i")) unit.pop_back();
  const std::string units = "BKMGT";
  const size_t power = unit.empty() ? 0 : units.find(unit);
  if (power == std::string::npos || unit.size() > 1) {
    return InvalidArgumentError("--bytes ", text, ": the unit is none of K, M, G, T");
  }
  const double bytes = number * std::pow(1024.0, static_cast<double>(power));
  if (!(bytes >= 0 && bytes <= 1e17)) return InvalidArgumentError("--bytes ", text);
  return static_cast<int64_t>(bytes);
}

// Like nccl-tests: the bytes are those of the larger of input and output.
int64_t CountOf(OpKind kind, int64_t bytes, DataType dtype, int ranks) {
  const int64_t elements = bytes / ByteSize(dtype);
  switch (kind) {
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
    case OpKind::kGather:
    case OpKind::kScatter:
      return elements / ranks;
    case OpKind::kBarrier:
      return 0;
    default:
      return elements;
  }
}

StatusOr<GroupTopology> TopologyOf(const Flags& flags) {
  CRIA_ASSIGN_OR_RETURN(Cluster cluster, ReadCluster(flags.cluster));
  int64_t per_host = cluster.ranks_per_host;
  if (flags.hosts > 0) {
    if (flags.hosts > flags.ranks) {
      return InvalidArgumentError("--hosts ", flags.hosts, " for --ranks ", flags.ranks);
    }
    per_host = (flags.ranks + flags.hosts - 1) / flags.hosts;
  }
  const int64_t hosts = (flags.ranks + per_host - 1) / per_host;
  if (hosts > cluster.hosts) {
    // A single machine's description says what a host is; there may be several like it.
    if (!cluster.tiers.empty()) {
      return InvalidArgumentError("--ranks ", flags.ranks, " need ", hosts, " hosts of ", per_host,
                                  ": ", cluster.name, " has ", cluster.hosts);
    }
    cluster.hosts = hosts;
  }
  std::vector<int64_t> placement = ContiguousPlacement(cluster, flags.ranks, per_host);
  if (flags.deal) {
    for (size_t rank = 0; rank < placement.size(); ++rank) {
      placement[rank] = static_cast<int64_t>(rank) % hosts;
    }
  }
  return GroupTopologyOf(cluster, placement);
}

Status Check(PlanRequest request, const AlgorithmOverrides& overrides) {
  const int n = request.topology->size();
  const bool whole = request.kind == OpKind::kAllReduce || request.kind == OpKind::kReduce ||
                     request.kind == OpKind::kBroadcast;
  const int64_t buffers = 2 * int64_t{n} * (whole ? 1 : n);
  if (n > kCheckRanksMax || request.count > kCheckElementsMax / buffers) {
    return InvalidArgumentError("--check runs all ranks' plans element by element: at most ",
                                kCheckRanksMax, " ranks, here ", kCheckElementsMax / buffers,
                                " elements; give fewer --bytes");
  }
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < n; ++request.rank) {
    CRIA_ASSIGN_OR_RETURN(Plan plan, BuildPlan(request, overrides));
    plans.push_back(std::move(plan));
  }
  if (request.kind == OpKind::kBarrier) {
    request.kind = OpKind::kAllReduce;
    request.count = 1;
  }
  for (const bool in_place : {false, true}) {
    const Status status = RunPlans(plans, JobOf(request, in_place));
    if (!status.ok()) return InternalError("the plan is wrong: ", Message(status));
  }
  const PlanCost counted = CountCost(plans, *request.topology);
  std::fprintf(stderr,
               "checked: each element once, in place too; counted task by task: %d rounds, latency "
               "%.2f us, bandwidth %.2f us, reduce %.2f us, total %.2f us\n",
               counted.rounds, counted.latency_us, counted.bandwidth_us, counted.reduce_us,
               counted.total_us());
  return OkStatus();
}

Status Run(const Flags& flags) {
  PlanRequest request;
  CRIA_ASSIGN_OR_RETURN(request.kind, ParseOpKind(flags.op));
  CRIA_ASSIGN_OR_RETURN(request.dtype, ParseDataType(flags.dtype));
  CRIA_ASSIGN_OR_RETURN(request.reduce_op, ParseReduceOp(flags.redop));
  CRIA_ASSIGN_OR_RETURN(const int64_t bytes, ParseByteCount(flags.bytes));
  if (Reduces(request.kind) && !Reducible(request.dtype)) {
    return InvalidArgumentError(Name(request.dtype), " only travels; it has no reduction");
  }
  request.count = CountOf(request.kind, bytes, request.dtype, flags.ranks);
  request.root = flags.root;
  request.rank = flags.rank;
  request.tcp_only = flags.tcp_only;
  CRIA_ASSIGN_OR_RETURN(const GroupTopology topology, TopologyOf(flags));
  request.topology = &topology;
  AlgorithmOverrides overrides;
  if (!flags.algorithms.empty()) {
    // "ring" alone is meant for this operation.
    const bool alone = flags.algorithms.find(':') == std::string::npos;
    CRIA_ASSIGN_OR_RETURN(
        overrides, ParseAlgorithmOverrides(alone ? StrCat(Name(request.kind), ":", flags.algorithms)
                                                 : flags.algorithms));
  }
  CRIA_ASSIGN_OR_RETURN(const Explanation explanation, Explain(request, overrides));
  if (flags.json) {
    CRIA_ASSIGN_OR_RETURN(const std::string json, JsonOf(explanation));
    std::printf("%s\n", json.c_str());
  } else {
    std::fputs(TextOf(explanation).c_str(), stdout);
  }
  return flags.check ? Check(request, overrides) : OkStatus();
}

}  // namespace

void AddExplainCommand(CLI::App* app, int* exit_code) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* explain = app->add_subcommand(
      "explain", "Which algorithm an operation gets, what each would cost, and the plan's rounds");
  explain->add_option("--op", flags->op, "all_reduce, broadcast, ...")->capture_default_str();
  explain->add_option("--bytes", flags->bytes, "Of the larger of input and output: 8, 64K, 1G")
      ->capture_default_str();
  explain->add_option("--ranks", flags->ranks, "Ranks of the group")
      ->check(CLI::Range(1, kRanksMax))
      ->capture_default_str();
  explain
      ->add_option("--hosts", flags->hosts, "Hosts they fill; default: the cluster's ranks a host")
      ->check(CLI::Range(1, kRanksMax));
  explain->add_flag("--deal", flags->deal,
                    "Ranks dealt out to the hosts in turn, not host by host");
  explain
      ->add_option("--cluster", flags->cluster,
                   "A YAML file, or the name of one in configs/clusters")
      ->capture_default_str();
  explain->add_option("--algo", flags->algorithms,
                      "ring, or as CRIA_COMM_ALGO: all_reduce:ring;...");
  explain->add_option("--dtype", flags->dtype, "Element type")->capture_default_str();
  explain->add_option("--redop", flags->redop, "sum, avg, min, max, prod")->capture_default_str();
  explain->add_option("--root", flags->root, "Root of a rooted operation")->capture_default_str();
  explain->add_option("--rank", flags->rank, "Whose rounds are shown")->capture_default_str();
  explain->add_flag("--tcp", flags->tcp_only, "TCP inside hosts too");
  explain->add_flag("--check", flags->check,
                    "Run all ranks' plans in one process, check every rule, count their cost");
  explain->add_flag("--json", flags->json, "The candidates as JSON");
  explain->callback([flags, exit_code] {
    const Status status = Run(*flags);
    if (!status.ok()) std::fprintf(stderr, "cria comm explain: %s\n", Message(status).c_str());
    *exit_code = ExitCode(status);
  });
}

}  // namespace cria::comm
