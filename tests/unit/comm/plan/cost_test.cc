// The closed forms against counting the tasks of built plans.
#include "comm/plan/cost.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "base/str.h"
#include "comm/plan/count_cost.h"

namespace cria::comm {
namespace {

constexpr OpKind kKinds[] = {OpKind::kAllReduce, OpKind::kReduce,        OpKind::kBroadcast,
                             OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kAllToAll,
                             OpKind::kGather,    OpKind::kScatter};

// `hosts` hosts of `ranks` ranks; racks of `hosts_per_rack` behind 1:7.
GroupTopology Cluster(int hosts, int ranks, int hosts_per_rack) {
  GroupTopology topology;
  for (int host = 0; host < hosts; ++host) {
    for (int rank = 0; rank < ranks; ++rank) topology.host_of_rank.push_back(host);
  }
  if (hosts_per_rack > 0) {
    topology.tier_of_host.emplace_back();
    for (int host = 0; host < hosts; ++host) {
      topology.tier_of_host[0].push_back(host / hosts_per_rack);
    }
    topology.oversubscription = {7};
  }
  return topology;
}

std::vector<PlanShape> Shapes() {
  constexpr Algorithm kHosts = Algorithm::kHierarchical;
  std::vector<PlanShape> shapes = {
      {.algorithm = Algorithm::kFlat},
      {.algorithm = Algorithm::kRing, .num_chunks = 8},
      {.algorithm = Algorithm::kHalvingDoubling},
      {.algorithm = Algorithm::kHalvingDoubling, .recursive_doubling = true},
      {.algorithm = Algorithm::kDoubleTree},
      {.algorithm = Algorithm::kDoubleTree, .num_chunks = 16},
      {.algorithm = Algorithm::kPairwise},
      {.algorithm = kHosts, .between = Algorithm::kFlat},
      {.algorithm = kHosts, .between = Algorithm::kRing},
      {.algorithm = kHosts, .between = Algorithm::kHalvingDoubling},
      {.algorithm = kHosts, .num_chunks = 8, .between = Algorithm::kDoubleTree},
      {.algorithm = kHosts,
       .between = Algorithm::kRing,
       .tier = 0,
       .across = Algorithm::kHalvingDoubling},
      {.algorithm = kHosts,
       .between = Algorithm::kHalvingDoubling,
       .tier = 0,
       .across = Algorithm::kRing}};
  return shapes;
}

PlanCost Counted(PlanRequest request, const PlanShape& shape) {
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < request.topology->size(); ++request.rank) {
    plans.push_back(BuildShape(request, shape));
  }
  return CountCost(plans, *request.topology);
}

struct Layout {
  int hosts, ranks, hosts_per_rack;
};
// Powers of two, where the closed forms are meant to be near exact, and others.
constexpr Layout kPowers[] = {{1, 8, 0}, {8, 1, 0}, {16, 1, 4}, {4, 4, 0}, {8, 4, 2}, {2, 2, 0}};
constexpr Layout kOthers[] = {{1, 6, 0}, {6, 1, 0}, {3, 2, 0}, {12, 1, 4}, {6, 3, 3}, {1, 1, 0}};

std::string CaseName(const Layout& layout, const PlanShape& shape, const PlanRequest& request) {
  return StrCat(layout.hosts, " hosts of ", layout.ranks, " ranks, racks of ",
                layout.hosts_per_rack, ": ", Describe(shape), ", ", Name(request.kind), " of ",
                request.count, " ", Name(request.dtype));
}

// Calls check(name, shape, kind, closed, counted) for every shape and kind on every layout.
template <typename Check>
void ForEachCase(std::span<const Layout> layouts, int64_t count, DataType dtype, Check&& check) {
  for (const Layout& layout : layouts) {
    const GroupTopology topology = Cluster(layout.hosts, layout.ranks, layout.hosts_per_rack);
    const GroupShape group = ShapeOf(topology);
    for (const PlanShape& shape : Shapes()) {
      if (shape.tier >= 0 && topology.tier_of_host.empty()) continue;
      for (const OpKind kind : kKinds) {
        const PlanRequest request{
            .kind = kind, .dtype = dtype, .count = count, .topology = &topology};
        if (!WhyNot(request, shape).empty()) continue;
        check(CaseName(layout, shape, request), shape, kind, PriceShape(request, group, shape),
              Counted(request, shape));
      }
    }
  }
}

TEST(CostTest, RoundsAreThoseOfThePlan) {
  for (const auto& layouts : {std::span<const Layout>(kPowers), std::span<const Layout>(kOthers)}) {
    for (const int64_t count : {1, 40, 1 << 20}) {
      ForEachCase(
          layouts, count, DataType::kFloat32,
          [](const std::string& name, const PlanShape&, OpKind, const PlanCost& closed,
             const PlanCost& counted) { EXPECT_EQ(closed.rounds, counted.rounds) << name; });
    }
  }
}

// Ring, halving and doubling, flat and what is made of them: the arithmetic of their papers.
TEST(CostTest, IsExactForAllReduceOfPowersOfTwo) {
  int num_checked = 0;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBfloat16}) {
    ForEachCase(kPowers, int64_t{1} << 20, dtype,
                [&](const std::string& name, const PlanShape& shape, OpKind kind,
                    const PlanCost& closed, const PlanCost& counted) {
                  const bool tree = shape.algorithm == Algorithm::kDoubleTree ||
                                    shape.between == Algorithm::kDoubleTree;
                  if (kind != OpKind::kAllReduce || tree) return;
                  ++num_checked;
                  EXPECT_NEAR(closed.latency_us / counted.latency_us, 1, 0.01) << name;
                  EXPECT_NEAR(closed.bandwidth_us / counted.bandwidth_us, 1, 0.01) << name;
                  EXPECT_NEAR(closed.bytes_sent_max / counted.bytes_sent_max, 1, 0.01) << name;
                  if (counted.reduce_us > 0) {
                    EXPECT_NEAR(closed.reduce_us / counted.reduce_us, 1, 0.01) << name;
                  }
                });
  }
  EXPECT_GT(num_checked, 40);
}

TEST(CostTest, IsNearForAllOperations) {
  for (const int64_t count : {1, 1 << 20}) {
    ForEachCase(kPowers, count, DataType::kFloat32,
                [](const std::string& name, const PlanShape&, OpKind, const PlanCost& closed,
                   const PlanCost& counted) {
                  EXPECT_LE(closed.total_us(), counted.total_us() * 2.1) << name;
                  EXPECT_GE(closed.total_us(), counted.total_us() * 0.7) << name;
                });
    ForEachCase(kOthers, count, DataType::kFloat32,
                [](const std::string& name, const PlanShape&, OpKind, const PlanCost& closed,
                   const PlanCost& counted) {
                  EXPECT_LE(closed.total_us(), counted.total_us() * 2.3) << name;
                  EXPECT_GE(closed.total_us(), counted.total_us() * 0.55) << name;
                });
  }
}

}  // namespace
}  // namespace cria::comm
