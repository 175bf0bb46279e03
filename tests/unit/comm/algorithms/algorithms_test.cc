// Every algorithm, operation, size and placement through the interpreter.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/str.h"
#include "comm/plan/interpreter.h"
#include "comm/plan/planner.h"

namespace cria::comm {
namespace {

constexpr OpKind kKinds[] = {OpKind::kAllReduce,      OpKind::kReduce,     OpKind::kBroadcast,
                             OpKind::kAllGather,      OpKind::kAllGatherV, OpKind::kReduceScatter,
                             OpKind::kReduceScatterV, OpKind::kAllToAll,   OpKind::kGather,
                             OpKind::kScatter};

bool HasCounts(OpKind kind) {
  return kind == OpKind::kAllGatherV || kind == OpKind::kReduceScatterV;
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
// Hosts of 1, 2, 3, ... ranks.
GroupTopology UnevenHosts(int n) {
  GroupTopology topology;
  for (int host = 0; topology.size() < n; ++host) {
    for (int i = 0; i <= host && topology.size() < n; ++i) topology.host_of_rank.push_back(host);
  }
  return topology;
}
// Three hosts, dealt out like cards.
GroupTopology Dealt(int n) {
  GroupTopology topology;
  for (int rank = 0; rank < n; ++rank) topology.host_of_rank.push_back(rank % 3);
  return topology;
}
struct Placement {
  const char* name;
  GroupTopology (*make)(int n);
};
constexpr Placement kPlacements[] = {{"one host", OneHost},
                                     {"one rank a host", OneRankAHost},
                                     {"uneven hosts", UnevenHosts},
                                     {"dealt", Dealt}};

// Runs one case; counts of the V kinds differ by rank and have gaps between them.
Status RunCase(PlanRequest request, Algorithm algorithm, bool in_place) {
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
  request.in_place = in_place && request.kind == OpKind::kAllToAll;
  std::vector<Plan> plans;
  for (int rank = 0; rank < n; ++rank) {
    request.rank = rank;
    CRIA_ASSIGN_OR_RETURN(Plan plan, BuildPlan(request, {{request.kind, algorithm}}));
    plans.push_back(std::move(plan));
  }
  return RunPlans(plans, JobOf(request, in_place));
}

class AlgorithmsTest : public testing::TestWithParam<std::tuple<Algorithm, OpKind>> {};

TEST_P(AlgorithmsTest, MovesAndCombinesEachElementOnce) {
  const auto [algorithm, kind] = GetParam();
  int num_run = 0;
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32, 33, 64}) {
    for (const Placement& placement : kPlacements) {
      const GroupTopology topology = placement.make(n);
      const int64_t p = n;
      for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{7}, p - 1, p, p + 1, int64_t{65},
                                  n > 16 ? p : 40 * p + 3}) {
        for (const bool in_place : {false, true}) {
          PlanRequest request{.kind = kind, .count = count, .root = n / 2, .topology = &topology};
          const Status status = RunCase(request, algorithm, in_place);
          if (status.code() == StatusCode::kInvalidArgument) continue;  // has no such operation
          ++num_run;
          ASSERT_TRUE(status.ok())
              << Name(algorithm) << " " << Name(kind) << ", " << n << " ranks, " << placement.name
              << ", count " << count << (in_place ? ", in place: " : ": ") << Message(status);
        }
      }
    }
  }
  if (algorithm == Algorithm::kFlat) {
    EXPECT_GT(num_run, 800);
  }
  if (num_run == 0) GTEST_SKIP() << Name(algorithm) << " has no " << Name(kind);
}

INSTANTIATE_TEST_SUITE_P(
    All, AlgorithmsTest,
    testing::Combine(testing::Values(Algorithm::kFlat, Algorithm::kRing,
                                     Algorithm::kHalvingDoubling, Algorithm::kDoubleTree,
                                     Algorithm::kHierarchical, Algorithm::kPairwise),
                     testing::ValuesIn(kKinds)),
    [](const auto& info) {
      return StrCat(Name(std::get<0>(info.param)), "_", Name(std::get<1>(info.param)));
    });

}  // namespace
}  // namespace cria::comm
