#include "comm/plan/planner.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "base/str.h"
#include "comm/plan/interpreter.h"

namespace cria::comm {
namespace {

GroupTopology Hosts(int hosts, int ranks) {
  GroupTopology topology;
  for (int host = 0; host < hosts; ++host) {
    for (int rank = 0; rank < ranks; ++rank) topology.host_of_rank.push_back(host);
  }
  return topology;
}

Algorithm Chosen(const GroupTopology& topology, OpKind kind, int64_t count) {
  const auto shape = ChooseShape({.kind = kind, .count = count, .topology = &topology});
  EXPECT_TRUE(shape.ok()) << Message(shape.status());
  return shape->algorithm;
}

TEST(PlannerTest, ChoosesFlatOnOneHost) {
  const GroupTopology topology = Hosts(1, 8);
  for (const int64_t count : {int64_t{1}, int64_t{1} << 10, int64_t{1} << 28}) {
    EXPECT_EQ(Chosen(topology, OpKind::kAllReduce, count), Algorithm::kFlat) << count;
    EXPECT_EQ(Chosen(topology, OpKind::kAllGather, count), Algorithm::kFlat) << count;
  }
}

TEST(PlannerTest, ChoosesFewStepsForSmallAndFewBytesForLarge) {
  const GroupTopology topology = Hosts(64, 1);
  const auto small = ChooseShape({.kind = OpKind::kAllReduce, .count = 2, .topology = &topology});
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->algorithm, Algorithm::kHalvingDoubling);
  EXPECT_TRUE(small->recursive_doubling);
  const auto large =
      ChooseShape({.kind = OpKind::kAllReduce, .count = 1 << 28, .topology = &topology});
  ASSERT_TRUE(large.ok());
  EXPECT_FALSE(large->recursive_doubling);
}

TEST(PlannerTest, ChoosesHierarchyWhereHostsHaveSeveralRanks) {
  const GroupTopology topology = Hosts(4, 8);
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter}) {
    EXPECT_EQ(Chosen(topology, kind, 1 << 20), Algorithm::kHierarchical) << Name(kind);
  }
}

TEST(PlannerTest, ChoosesAlikeOnAllRanksAndInAllRuns) {
  const GroupTopology topology = Hosts(3, 5);
  for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kAllToAll}) {
    std::set<uint64_t> digests;
    for (int rank = 0; rank < 15; ++rank) {
      const auto plan =
          BuildPlan({.kind = kind, .count = 12345, .topology = &topology, .rank = rank});
      ASSERT_TRUE(plan.ok());
      digests.insert(plan->digest);
    }
    EXPECT_EQ(digests.size(), 1u) << Name(kind);
  }
}

// "heterogeneous nodes choose another algorithm and hang": whatever makes another plan makes
// another digest.
TEST(PlannerTest, GivesAnotherDigestToAnotherPlan) {
  const GroupTopology topology = Hosts(4, 2);
  const GroupTopology dealt = {.host_of_rank = {0, 1, 2, 3, 0, 1, 2, 3}};
  GroupTopology racks = topology;
  racks.tier_of_host = {{0, 1, 0, 1}};
  const std::vector<int64_t> counts = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int64_t> others = {1, 2, 3, 4, 5, 6, 8, 7};
  const PlanRequest base{.count = 100, .topology = &topology};
  std::vector<PlanRequest> requests(9, base);
  requests[1].count = 101;
  requests[2].dtype = DataType::kInt32;
  requests[3].reduce_op = ReduceOp::kMax;
  requests[4].topology = &dealt;
  requests[5].topology = &racks;
  requests[6].tcp_only = true;
  requests[7] = {.kind = OpKind::kAllGatherV, .counts = counts, .topology = &topology};
  requests[8] = {.kind = OpKind::kAllGatherV, .counts = others, .topology = &topology};
  std::set<uint64_t> digests;
  for (const PlanRequest& request : requests) {
    const auto plan = BuildPlan(request, {{request.kind, Algorithm::kRing}});
    ASSERT_TRUE(plan.ok()) << Message(plan.status());
    digests.insert(plan->digest);
  }
  const auto halving = BuildPlan(base, {{OpKind::kAllReduce, Algorithm::kHalvingDoubling}});
  digests.insert(halving->digest);
  EXPECT_EQ(digests.size(), 10u);
}

TEST(PlannerTest, AveragesIntegersInOnePlace) {
  const GroupTopology topology = Hosts(4, 4);
  PlanRequest request{.dtype = DataType::kInt8,
                      .reduce_op = ReduceOp::kAvg,
                      .count = 1 << 20,
                      .topology = &topology};
  const auto plan = BuildPlan(request);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->algorithm, Algorithm::kFlat);
  EXPECT_EQ(plan->scratch_elements, 0);
  const auto forced = BuildPlan(request, {{OpKind::kAllReduce, Algorithm::kRing}});
  EXPECT_EQ(forced.status().code(), StatusCode::kInvalidArgument);
}

TEST(PlannerTest, PlansABarrierInWhichAllDependOnAll) {
  for (const GroupTopology& topology : {Hosts(1, 1), Hosts(1, 7), Hosts(5, 1), Hosts(3, 4)}) {
    std::vector<Plan> plans;
    for (int rank = 0; rank < topology.size(); ++rank) {
      const auto plan =
          BuildPlan({.kind = OpKind::kBarrier, .count = 0, .topology = &topology, .rank = rank});
      ASSERT_TRUE(plan.ok());
      EXPECT_EQ(plan->kind, OpKind::kAllReduce);
      plans.push_back(*plan);
    }
    const PlanRequest one{.kind = OpKind::kAllReduce, .count = 1, .topology = &topology};
    const Status status = RunPlans(plans, JobOf(one, false));
    EXPECT_TRUE(status.ok()) << Message(status);
  }
}

TEST(PlannerTest, RefusesWhatHasNoPlan) {
  const GroupTopology topology = Hosts(1, 2);
  const std::vector<int64_t> counts = {1};
  for (const PlanRequest& request : {
           PlanRequest{.kind = OpKind::kSend, .topology = &topology},
           PlanRequest{.kind = OpKind::kAllToAllV, .topology = &topology},
           PlanRequest{.root = 2, .topology = &topology},
           PlanRequest{.count = -1, .topology = &topology},
           PlanRequest{.topology = &topology, .rank = 2},
           PlanRequest{.kind = OpKind::kAllGatherV, .counts = counts, .topology = &topology},
       }) {
    EXPECT_EQ(BuildPlan(request).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(ParseAlgorithmOverridesTest, TakesBothSpellings) {
  const auto overrides =
      ParseAlgorithmOverrides("all_reduce:ring;broadcast:double_tree;reducescatter:flat");
  ASSERT_TRUE(overrides.ok()) << Message(overrides.status());
  const AlgorithmOverrides expected = {{OpKind::kAllReduce, Algorithm::kRing},
                                       {OpKind::kBroadcast, Algorithm::kDoubleTree},
                                       {OpKind::kReduceScatter, Algorithm::kFlat}};
  EXPECT_EQ(*overrides, expected);
  EXPECT_EQ(ParseAlgorithmOverrides("allreduce:ring")->at(OpKind::kAllReduce), Algorithm::kRing);
  EXPECT_TRUE(ParseAlgorithmOverrides("")->empty());
  EXPECT_EQ(ParseAlgorithmOverrides(";allreduce:ring;")->size(), 1u);
}

TEST(ParseAlgorithmOverridesTest, SaysWhatThereIs) {
  const auto message = [](const std::string& text) {
    return Message(ParseAlgorithmOverrides(text).status());
  };
  EXPECT_EQ(message("allreduce:tree"),
            "algorithm \"tree\" is none of flat, ring, halving_doubling, double_tree, "
            "hierarchical, pairwise");
  EXPECT_NE(message("reduceall:ring").find("is none of all_reduce"), std::string::npos);
  EXPECT_NE(message("ring").find("OPERATION:ALGORITHM"), std::string::npos);
  EXPECT_NE(message("allreduce:ring;all_reduce:flat").find("twice"), std::string::npos);
}

}  // namespace
}  // namespace cria::comm
