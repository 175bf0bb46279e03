// Plans of groups and buffers that this machine could not hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "comm/plan/plan_shape.h"
#include "comm/plan/planner.h"

namespace cria::comm {
namespace {

GroupTopology Hosts(int hosts, int ranks) {
  GroupTopology topology;
  for (int host = 0; host < hosts; ++host) {
    for (int rank = 0; rank < ranks; ++rank) topology.host_of_rank.push_back(host);
  }
  return topology;
}

size_t NumRegions(const Plan& plan) {
  size_t regions = 0;
  for (const Round& round : plan.rounds) {
    for (const Task& task : round.tasks) regions += task.sources.size() + task.targets.size();
  }
  return regions;
}

// One rank's view of 8,192 ranks: what it touches, no more.
TEST(ScaleTest, AViewIsAsLargeAsWhatItsRankDoes) {
  const GroupTopology topology = Hosts(1024, 8);
  PlanRequest request{.count = int64_t{1} << 24, .topology = &topology, .rank = 4711};
  const Plan ring = BuildShape(request, {.algorithm = Algorithm::kRing});
  EXPECT_EQ(ring.rounds.size(), 2u * 8191);
  // Each round: one task to receive (two sources, a target, or one source), one to send.
  EXPECT_LE(NumRegions(ring), 8191u * (2 * 3 + 2 * 2));
  EXPECT_LE(ring.scratch_elements, 2 * ((request.count / 8192) + 16));
  const Plan halving = BuildShape(request, {.algorithm = Algorithm::kHalvingDoubling});
  EXPECT_EQ(halving.rounds.size(), 26u);
  EXPECT_LE(NumRegions(halving), 13u * 10);
  const Plan tree = BuildShape(request, {.algorithm = Algorithm::kDoubleTree, .num_chunks = 64});
  EXPECT_LE(tree.rounds.size(), 64u + 2 * 14);
  EXPECT_LE(NumRegions(tree), 64u * 40);
  const Plan hosts = BuildShape(
      request, {.algorithm = Algorithm::kHierarchical, .between = Algorithm::kHalvingDoubling});
  EXPECT_EQ(hosts.rounds.size(), 2u + 20);
  EXPECT_LE(NumRegions(hosts), 500u);
}

struct Interval {
  int64_t begin, end;
};

// The places of a slot that a rank's own tasks, or others' tasks in its view, write.
std::vector<Interval> Written(const std::vector<Plan>& plans, int rank) {
  std::vector<Interval> intervals;
  for (const Plan& plan : plans) {
    for (const Round& round : plan.rounds) {
      for (const Task& task : round.tasks) {
        if (task.owner != plan.rank) continue;
        for (const Region& target : task.targets) {
          if (target.rank != rank || target.slot != Slot::kOutput) continue;
          intervals.push_back({target.offset, target.offset + task.count});
        }
      }
    }
  }
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return intervals;
}

// Offsets of 2^33 elements and more: the output is covered without gap or overlap, and no source
// lies outside its buffer.
TEST(ScaleTest, CountsBeyond2To31AreNotCutOff) {
  const GroupTopology topology = Hosts(3, 2);
  constexpr int kRanks = 6;
  for (const int64_t count : {(int64_t{1} << 31) - 1, int64_t{1} << 31, (int64_t{1} << 33) + 7}) {
    for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kReduceScatter,
                              OpKind::kAllToAll, OpKind::kBroadcast}) {
      for (int a = 0; a < kNumAlgorithms; ++a) {
        PlanRequest request{.kind = kind, .count = count, .topology = &topology};
        if (!WhyNot(request, static_cast<Algorithm>(a)).empty()) continue;
        std::vector<Plan> plans;
        for (request.rank = 0; request.rank < kRanks; ++request.rank) {
          const auto plan = BuildPlan(request, {{kind, static_cast<Algorithm>(a)}});
          ASSERT_TRUE(plan.ok());
          plans.push_back(*plan);
        }
        const bool many = kind == OpKind::kAllGather || kind == OpKind::kAllToAll;
        const int64_t output = many ? kRanks * count : count;
        for (int rank = 1; rank < kRanks; ++rank) {  // rank 0 is the broadcast's root
          int64_t next = 0;
          for (const Interval& interval : Written(plans, rank)) {
            ASSERT_EQ(interval.begin, next)
                << Name(static_cast<Algorithm>(a)) << " " << Name(kind) << " " << count;
            next = interval.end;
          }
          ASSERT_EQ(next, output) << Name(static_cast<Algorithm>(a)) << " " << Name(kind) << " "
                                  << count;
        }
      }
    }
  }
}

TEST(ScaleTest, DisplacementsBeyond2To31AreNotCutOff) {
  const GroupTopology topology = Hosts(2, 2);
  const int64_t far = int64_t{1} << 34;
  const std::vector<int64_t> counts = {5, 0, 7, int64_t{1} << 32};
  const std::vector<int64_t> displacements = {far, 0, 3, far + 100};
  for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kRing, Algorithm::kHalvingDoubling,
                                    Algorithm::kHierarchical}) {
    PlanRequest request{.kind = OpKind::kAllGatherV,
                        .counts = counts,
                        .displacements = displacements,
                        .topology = &topology};
    std::vector<Plan> plans;
    for (request.rank = 0; request.rank < 4; ++request.rank) {
      plans.push_back(*BuildPlan(request, {{request.kind, algorithm}}));
    }
    for (int rank = 0; rank < 4; ++rank) {
      int64_t written = 0, end = 0;
      for (const Interval& interval : Written(plans, rank)) {
        written += interval.end - interval.begin;
        end = std::max(end, interval.end);
      }
      EXPECT_EQ(written, 12 + (int64_t{1} << 32)) << Name(algorithm);
      EXPECT_EQ(end, far + 100 + (int64_t{1} << 32)) << Name(algorithm);
    }
  }
}

}  // namespace
}  // namespace cria::comm
