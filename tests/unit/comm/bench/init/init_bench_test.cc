#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "comm/bench/init/mesh_groups.h"
#include "comm/bench/init/sample.h"
#include "comm/bench/init/virtual_job.h"

namespace cria::comm {
namespace {

TEST(MeshGroupsTest, MeshHoldsAllRanks) {
  for (const int num_ranks : {1, 2, 3, 6, 8, 64, 96, 1000, 8192}) {
    const Mesh mesh = MeshOf(num_ranks);
    EXPECT_EQ(mesh.size[0] * mesh.size[1] * mesh.size[2] * mesh.size[3], num_ranks);
  }
  EXPECT_EQ(Describe(MeshOf(8192)), "TP 8, CP 2, PP 16, DP 32");
}

// Each group parts the world: all its members see the same list and the same id, no two groups of
// a name share a rank, and no two groups share an id.
TEST(MeshGroupsTest, MembersAgreeOnEachGroup) {
  const int num_ranks = 96;
  const Mesh mesh = MeshOf(num_ranks);
  std::map<uint64_t, std::pair<std::string, std::vector<int>>> groups;
  std::map<std::string, std::multiset<int>> ranks_of_name;
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (const MeshGroup& group : GroupsOf(mesh, rank, kMeshGroupsMax)) {
      ASSERT_TRUE(std::is_sorted(group.members.begin(), group.members.end()));
      ASSERT_EQ(group.members[static_cast<size_t>(group.position)], rank) << group.name;
      const auto [entry, added] =
          groups.try_emplace(group.id, std::string(group.name), group.members);
      ASSERT_EQ(entry->second.first, group.name);
      ASSERT_EQ(entry->second.second, group.members) << group.name << " of rank " << rank;
      if (added) ranks_of_name[group.name].insert(group.members.begin(), group.members.end());
    }
  }
  EXPECT_EQ(ranks_of_name.size(), static_cast<size_t>(kMeshGroupsMax));
  for (const auto& [name, ranks] : ranks_of_name) {
    EXPECT_EQ(ranks.size(), static_cast<size_t>(num_ranks)) << name;
    EXPECT_EQ(std::set<int>(ranks.begin(), ranks.end()).size(), ranks.size()) << name;
  }
}

TEST(FitExponentTest, FindsTheExponentOfAPower) {
  EXPECT_NEAR(FitExponent({{64, 3.0}, {128, 6.0}, {256, 12.0}}), 1, 1e-9);
  EXPECT_NEAR(FitExponent({{10, 5.0}, {100, 500.0}}), 2, 1e-9);
  EXPECT_EQ(FitExponent({{10, 5.0}}), 0);
}

TEST(VirtualJobTest, StartsAllRanksOfBothSchemes) {
  for (const InitScheme scheme : {InitScheme::kCria, InitScheme::kStore}) {
    const auto sample = RunVirtualJob(
        {.scheme = scheme, .num_ranks = 32, .num_groups = 8, .degree = 16, .timeout_s = 120});
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_GT(sample->seconds, 0);
    EXPECT_GE(sample->seconds, sample->map_seconds);
    // The store: one to it, and a mesh. Ours: the master, a parent for all but the first 16, and
    // a link on the host or a group's across hosts.
    if (scheme == InitScheme::kStore) {
      EXPECT_EQ(sample->connections, 32 + 32 * 31 / 2);
    } else {
      EXPECT_GE(sample->connections, 32 + 16);
      EXPECT_LE(sample->connections, 2 * (32 + 16) + 32 * 8);
      EXPECT_EQ(sample->rounds, 2 * 2 + 4);
    }
  }
}

TEST(VirtualJobTest, EndsAtItsLimit) {
  const auto sample = RunVirtualJob({.num_ranks = 512, .timeout_s = 1e-6});
  ASSERT_FALSE(sample.ok());
  EXPECT_EQ(sample.status().code(), StatusCode::kDeadlineExceeded) << sample.status();
}

}  // namespace
}  // namespace cria::comm
