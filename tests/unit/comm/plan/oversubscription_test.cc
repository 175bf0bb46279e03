// What the planner makes of oversubscribed tiers: NCCL's model has no such term.
#include <gtest/gtest.h>

#include <vector>

#include "base/topology.h"
#include "comm/plan/cluster_topology.h"
#include "comm/plan/count_cost.h"
#include "comm/plan/planner.h"

namespace cria::comm {
namespace {

constexpr int64_t kCount = int64_t{16} << 20;  // 64 MiB of float32

// 16 hosts of 8 GPUs in two pods.
Cluster TwoPods(double oversubscription) {
  Cluster cluster;
  cluster.hosts = 16;
  cluster.ranks_per_host = 8;
  cluster.inside = {.latency_us = 3, .gigabytes_per_s = 300, .message_us = 0.5};
  cluster.link = {.latency_us = 5, .gigabytes_per_s = 50, .message_us = 1};
  cluster.host_gigabytes_per_s = 400;
  cluster.reduce_gigabytes_per_s = 1000;
  cluster.tiers = {
      {.name = "pod", .hosts = 8, .oversubscription = oversubscription, .latency_us = 3}};
  return cluster;
}

// The cost on the real topology of what is built for the believed one, counted task by task: its
// choice, or a given shape.
double CostOn(const GroupTopology& real, const GroupTopology& believed,
              const PlanShape* given = nullptr) {
  PlanRequest request{.kind = OpKind::kAllReduce, .count = kCount, .topology = &believed};
  const PlanShape shape = given != nullptr ? *given : *ChooseShape(request);
  std::vector<Plan> plans;
  for (request.rank = 0; request.rank < believed.size(); ++request.rank) {
    plans.push_back(BuildShape(request, shape));
  }
  return CountCost(plans, real).total_us();
}

TEST(OversubscriptionTest, MakesThePlannerGoByTier) {
  const auto placement = ContiguousPlacement(TwoPods(1), 128);
  const GroupTopology even = GroupTopologyOf(TwoPods(1), placement);
  const GroupTopology narrow = GroupTopologyOf(TwoPods(7), placement);
  const auto on_even =
      ChooseShape({.kind = OpKind::kAllReduce, .count = kCount, .topology = &even});
  const auto on_narrow =
      ChooseShape({.kind = OpKind::kAllReduce, .count = kCount, .topology = &narrow});
  ASSERT_TRUE(on_even.ok() && on_narrow.ok());
  EXPECT_EQ(on_even->tier, -1) << Describe(*on_even);
  EXPECT_EQ(on_narrow->tier, 0) << Describe(*on_narrow);
  // What the choice without the term costs at 1:7, against the choice with it.
  const double gain = CostOn(narrow, even) / CostOn(narrow, narrow);
  RecordProperty("modelled_gain_percent", static_cast<int>(100 * gain));
  EXPECT_GT(gain, 1.5);
  // And it is no loss to choose as if there were no oversubscription where there is none.
  EXPECT_LE(CostOn(even, even), CostOn(even, narrow));
}

// Ranks dealt out over the pods: whoever does not know the tiers crosses them at every hop.
TEST(OversubscriptionTest, OrdersDealtOutHostsByTier) {
  const Cluster cluster = TwoPods(7);
  std::vector<int64_t> placement;
  for (int rank = 0; rank < 128; ++rank) {
    const int64_t host = rank / 8;
    placement.push_back(host % 2 * 8 + host / 2);
  }
  const GroupTopology real = GroupTopologyOf(cluster, placement);
  GroupTopology blind = real;
  blind.tier_of_host.clear();
  EXPECT_GT(CostOn(real, blind) / CostOn(real, real), 1.5);
  // The same ring between hosts, in their order and in the order of tiers.
  const PlanShape ring = {.algorithm = Algorithm::kHierarchical, .between = Algorithm::kRing};
  const double gain = CostOn(real, blind, &ring) / CostOn(real, real, &ring);
  RecordProperty("modelled_gain_percent", static_cast<int>(100 * gain));
  EXPECT_GT(gain, 2);
}

TEST(OversubscriptionTest, PlansLlama3sClusterByTier) {
  const auto cluster = ReadCluster("llama3_24k");
  ASSERT_TRUE(cluster.ok());
  const GroupTopology topology = GroupTopologyOf(*cluster, ContiguousPlacement(*cluster, 24576));
  ASSERT_EQ(topology.tier_of_host.size(), 2u);
  EXPECT_EQ(topology.oversubscription[1], 7);
  const auto shape =
      ChooseShape({.kind = OpKind::kAllReduce, .count = kCount, .topology = &topology});
  ASSERT_TRUE(shape.ok());
  EXPECT_GE(shape->tier, 0) << Describe(*shape);
}

TEST(ClusterTopologyTest, NumbersHostsAndLeavesOutTiersInsideOneUnit) {
  const Cluster cluster = TwoPods(7);
  const GroupTopology one_pod = GroupTopologyOf(cluster, std::vector<int64_t>{5, 5, 3, 3});
  EXPECT_EQ(one_pod.host_of_rank, (std::vector<int>{0, 0, 1, 1}));
  EXPECT_TRUE(one_pod.tier_of_host.empty());
  EXPECT_EQ(one_pod.tcp.latency_us, 5);
  const GroupTopology both = GroupTopologyOf(cluster, std::vector<int64_t>{9, 1, 9, 2});
  EXPECT_EQ(both.host_of_rank, (std::vector<int>{0, 1, 0, 2}));
  EXPECT_EQ(both.tier_of_host, (std::vector<std::vector<int>>{{0, 1, 1}}));
  EXPECT_EQ(both.tcp.latency_us, 8);
}

}  // namespace
}  // namespace cria::comm
