// Random groups, operations and shapes through the interpreter; a failure prints its seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/str.h"
#include "comm/plan/interpreter.h"
#include "comm/plan/planner.h"

namespace cria::comm {
namespace {

constexpr int kCases = 400;

// Draws numbers one after another.
class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed, StreamOf("random plans")) {}
  int Below(int n) { return static_cast<int>(rng_.Below(next_++, static_cast<uint64_t>(n))); }
  double Between(double low, double high) { return low + (high - low) * rng_.Uniform(next_++); }

 private:
  const Rng rng_;
  uint64_t next_ = 0;
};

// Hosts, racks and zones at random; link costs over orders of magnitude.
GroupTopology RandomTopology(Draw* draw, int n) {
  GroupTopology topology;
  const int hosts_max = 1 + draw->Below(n);
  std::vector<int> numbers(static_cast<size_t>(hosts_max), -1);
  int num_hosts = 0;
  const bool dealt = draw->Below(3) == 0;
  for (int rank = 0; rank < n; ++rank) {
    const int host = dealt ? rank % hosts_max : draw->Below(hosts_max);
    int& number = numbers[static_cast<size_t>(host)];
    if (number < 0) number = num_hosts++;
    topology.host_of_rank.push_back(number);
  }
  for (int tier = 0, units = num_hosts; tier < draw->Below(3) && units > 1; ++tier) {
    units = 1 + draw->Below(units);
    // A unit of a higher tier is made of whole lower ones.
    std::vector<int> of_host;
    for (int host = 0; host < num_hosts; ++host) {
      const int below = tier == 0 ? host : topology.tier_of_host.back()[static_cast<size_t>(host)];
      of_host.push_back(below % units);
    }
    topology.tier_of_host.push_back(of_host);
    topology.oversubscription.push_back(draw->Between(1, 10));
  }
  topology.shm = {draw->Between(0.1, 5), draw->Between(1, 300), draw->Between(0, 1)};
  topology.tcp = {draw->Between(1, 100), draw->Between(0.1, 50), draw->Between(0, 5)};
  return topology;
}

PlanRequest RandomRequest(Draw* draw, const GroupTopology& topology, std::vector<int64_t>* counts) {
  constexpr OpKind kKinds[] = {OpKind::kAllReduce,      OpKind::kReduce,     OpKind::kBroadcast,
                               OpKind::kAllGather,      OpKind::kAllGatherV, OpKind::kReduceScatter,
                               OpKind::kReduceScatterV, OpKind::kAllToAll,   OpKind::kGather,
                               OpKind::kScatter};
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBfloat16, DataType::kInt8,
                                 DataType::kInt64};
  PlanRequest request;
  request.kind = kKinds[draw->Below(10)];
  request.dtype = kTypes[draw->Below(4)];
  request.reduce_op = static_cast<ReduceOp>(draw->Below(kNumReduceOps));
  request.root = draw->Below(topology.size());
  request.topology = &topology;
  request.tcp_only = draw->Below(4) == 0;
  constexpr int kCounts[] = {2, 20, 300, 2000};
  const int count_max = kCounts[draw->Below(4)];
  if (request.kind == OpKind::kAllGatherV || request.kind == OpKind::kReduceScatterV) {
    for (int rank = 0; rank < topology.size(); ++rank) {
      counts->push_back(draw->Below(3) == 0 ? 0 : draw->Below(count_max));
    }
    request.counts = *counts;
  } else {
    request.count = draw->Below(count_max);
  }
  return request;
}

// Runs one case: the chosen plan, or that of a random algorithm. Returns what it was.
std::string RunCase(uint64_t seed, Status* status) {
  Draw draw(seed);
  const int n = 1 + draw.Below(20);
  const GroupTopology topology = RandomTopology(&draw, n);
  std::vector<int64_t> counts;
  PlanRequest request = RandomRequest(&draw, topology, &counts);
  const bool in_place = draw.Below(2) == 0;
  AlgorithmOverrides overrides;
  const auto algorithm = static_cast<Algorithm>(draw.Below(kNumAlgorithms));
  if (draw.Below(2) == 0 && WhyNot(request, algorithm).empty()) {
    overrides[request.kind] = algorithm;
  }
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < n; ++request.rank) {
    auto plan = BuildPlan(request, overrides);
    if (!plan.ok()) {
      *status = plan.status();
      return "";
    }
    plans.push_back(*std::move(plan));
  }
  *status = RunPlans(plans, JobOf(request, in_place));
  return StrCat(Name(request.kind), " of ", request.count, " ", Name(request.dtype), ", ", n,
                " ranks: ", Name(plans[0].algorithm), in_place ? ", in place" : "");
}

TEST(RandomPlansTest, KeepTheRules) {
  const char* only = std::getenv("CRIA_PLAN_SEED");
  const uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  for (uint64_t seed = first; seed < first + (only != nullptr ? 1 : kCases); ++seed) {
    Status status;
    const std::string what = RunCase(seed, &status);
    ASSERT_TRUE(status.ok()) << what << ": " << Message(status)
                             << "\nagain: CRIA_PLAN_SEED=" << seed << " (this test)";
  }
}

}  // namespace
}  // namespace cria::comm
