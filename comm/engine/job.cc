#include "comm/engine/job.h"

#include <cstddef>
#include <unordered_map>

namespace cria::comm {

GroupTopology TopologyOfGroup(const GroupTopology& world, const std::vector<int>& world_ranks) {
  GroupTopology group = world;
  group.host_of_rank.clear();
  std::vector<int> hosts;               // of the world, by the group's number
  std::unordered_map<int, int> number;  // and the other way round
  for (const int rank : world_ranks) {
    const int host = world.host_of_rank[static_cast<size_t>(rank)];
    const auto [found, is_new] = number.emplace(host, static_cast<int>(hosts.size()));
    if (is_new) hosts.push_back(host);
    group.host_of_rank.push_back(found->second);
  }
  for (std::vector<int>& tier : group.tier_of_host) {
    std::vector<int> of_hosts;
    for (const int host : hosts) of_hosts.push_back(tier[static_cast<size_t>(host)]);
    tier = of_hosts;
  }
  return group;
}

}  // namespace cria::comm
