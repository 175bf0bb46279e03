// Every algorithm, operation, size and placement through the interpreter.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "base/str.h"
#include "comm/plan/interpreter.h"
#include "comm/plan/plan_shape.h"

namespace cria::comm {
namespace {

constexpr OpKind kKinds[] = {OpKind::kAllReduce,      OpKind::kReduce,     OpKind::kBroadcast,
                             OpKind::kAllGather,      OpKind::kAllGatherV, OpKind::kReduceScatter,
                             OpKind::kReduceScatterV, OpKind::kAllToAll,   OpKind::kGather,
                             OpKind::kScatter};

bool HasCounts(OpKind kind) {
  return kind == OpKind::kAllGatherV || kind == OpKind::kReduceScatterV;
}

// Kinds that touch n * n * count elements.
bool Quadratic(OpKind kind) {
  return kind == OpKind::kAllGather || kind == OpKind::kReduceScatter ||
         kind == OpKind::kAllToAll || HasCounts(kind);
}

GroupTopology OneHost(int n) {
  GroupTopology topology;
  topology.host_of_rank.assign(static_cast<size_t>(n), 0);
  return topology;
}
GroupTopology OneRankAHost(int n) {
  GroupTopology topology = OneHost(n);
  std::iota(topology.host_of_rank.begin(), topology.host_of_rank.end(), 0);
  return topology;
}
// Hosts of 2, 3, 4, ... ranks; the last has what is left.
GroupTopology UnevenHosts(int n) {
  GroupTopology topology;
  for (int host = 0; topology.size() < n; ++host) {
    for (int i = 0; i < host + 2 && topology.size() < n; ++i) topology.host_of_rank.push_back(host);
  }
  return topology;
}
// Three hosts, dealt out like cards.
GroupTopology Dealt(int n) {
  GroupTopology topology;
  for (int rank = 0; rank < n; ++rank) topology.host_of_rank.push_back(rank % 3);
  return topology;
}
// Hosts of two ranks, racks of two hosts that are not neighbours: hosts 0 and 2, 1 and 3, ...
GroupTopology Racks(int n) {
  GroupTopology topology;
  for (int rank = 0; rank < n; ++rank) topology.host_of_rank.push_back(rank / 2);
  topology.tier_of_host.emplace_back();
  for (int host = 0; host <= topology.host_of_rank.back(); ++host) {
    topology.tier_of_host[0].push_back(host / 4 * 2 + host % 2);
  }
  topology.oversubscription = {7};
  return topology;
}
struct Placement {
  const char* name;
  GroupTopology (*make)(int n);
};
constexpr Placement kPlacements[] = {{"one host", OneHost},
                                     {"one rank a host", OneRankAHost},
                                     {"uneven hosts", UnevenHosts},
                                     {"dealt", Dealt},
                                     {"racks", Racks}};

struct NamedShape {
  const char* name;
  PlanShape shape;
};
constexpr Algorithm kRing = Algorithm::kRing;
constexpr Algorithm kHalving = Algorithm::kHalvingDoubling;
constexpr Algorithm kTree = Algorithm::kDoubleTree;
constexpr Algorithm kHosts = Algorithm::kHierarchical;
constexpr NamedShape kShapes[] = {
    {"flat", {.algorithm = Algorithm::kFlat}},
    {"ring", {.algorithm = kRing, .num_chunks = 3}},
    {"halving_doubling", {.algorithm = kHalving}},
    {"recursive_doubling", {.algorithm = kHalving, .recursive_doubling = true}},
    {"double_tree", {.algorithm = kTree}},
    {"double_tree_chunks", {.algorithm = kTree, .num_chunks = 4}},
    {"pairwise", {.algorithm = Algorithm::kPairwise}},
    {"hosts_flat", {.algorithm = kHosts, .between = Algorithm::kFlat}},
    {"hosts_ring", {.algorithm = kHosts, .num_chunks = 2, .between = kRing}},
    {"hosts_halving", {.algorithm = kHosts, .between = kHalving}},
    {"hosts_recursive", {.algorithm = kHosts, .recursive_doubling = true, .between = kHalving}},
    {"hosts_tree", {.algorithm = kHosts, .num_chunks = 3, .between = kTree}},
    {"racks_ring_halving", {.algorithm = kHosts, .between = kRing, .tier = 0, .across = kHalving}},
    {"racks_halving_tree",
     {.algorithm = kHosts, .num_chunks = 2, .between = kHalving, .tier = 0, .across = kTree}},
    {"racks_flat_ring",
     {.algorithm = kHosts, .between = Algorithm::kFlat, .tier = 0, .across = kRing}},
};

// Runs one case; counts of the V kinds differ by rank and have gaps between them.
Status RunCase(PlanRequest request, const PlanShape& shape, bool in_place) {
  const int n = request.topology->size();
  std::vector<int64_t> counts, displacements;
  if (HasCounts(request.kind)) {
    int64_t next = 0;
    for (int r = 0; r < n; ++r) {
      counts.push_back(r % 3 == 1 ? 0 : request.count + r);
      displacements.push_back(next);
      next += counts.back() + (request.kind == OpKind::kAllGatherV ? r % 2 : 0);
    }
    request.counts = counts;
    request.displacements = displacements;
    request.count = 0;
  }
  std::vector<Plan> plans;
  for (int rank = 0; rank < n; ++rank) {
    request.rank = rank;
    plans.push_back(BuildShape(request, shape));
  }
  return RunPlans(plans, JobOf(request, in_place));
}

using Case = std::tuple<NamedShape, OpKind>;

// The shapes with the kinds that they have (planner_test holds the table of both).
std::vector<Case> Cases() {
  std::vector<Case> cases;
  const GroupTopology topology = Racks(16);
  for (const NamedShape& named : kShapes) {
    for (const OpKind kind : kKinds) {
      const PlanRequest request{.kind = kind, .topology = &topology};
      if (WhyNot(request, named.shape).empty()) cases.emplace_back(named, kind);
    }
  }
  return cases;
}

class AlgorithmsTest : public testing::TestWithParam<Case> {};

TEST_P(AlgorithmsTest, MovesAndCombinesEachElementOnce) {
  const auto& [named, kind] = GetParam();
  int num_run = 0;
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32, 33, 64}) {
    for (const Placement& placement : kPlacements) {
      const GroupTopology topology = placement.make(n);
      if (named.shape.tier >= 0 && topology.tier_of_host.empty()) continue;
      PlanRequest request{.kind = kind, .root = n / 2, .topology = &topology};
      if (!WhyNot(request, named.shape).empty()) continue;
      const int64_t p = n;
      for (const int64_t count :
           {int64_t{0}, int64_t{1}, int64_t{7}, p - 1, p, p + 1, n > 16 ? p : 40 * p + 3}) {
        // Large groups with many elements take long; they say little more.
        if (n > 9 && count != (Quadratic(kind) ? 1 : p + 1)) continue;
        if (n > 17 && Quadratic(kind) && placement.make == OneHost) continue;
        for (const bool in_place : {false, true}) {
          if (n > 9 && !in_place) continue;  // in place is the harder one
          request.count = count;
          const Status status = RunCase(request, named.shape, in_place);
          ++num_run;
          ASSERT_TRUE(status.ok())
              << named.name << " " << Name(kind) << ", " << n << " ranks, " << placement.name
              << ", count " << count << (in_place ? ", in place: " : ": ") << Message(status);
        }
      }
    }
  }
  EXPECT_GT(num_run, 10);
}

INSTANTIATE_TEST_SUITE_P(All, AlgorithmsTest, testing::ValuesIn(Cases()), [](const auto& info) {
  return StrCat(std::get<0>(info.param).name, "_", Name(std::get<1>(info.param)));
});

}  // namespace
}  // namespace cria::comm
