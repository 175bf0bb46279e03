#include "comm/plan/cluster_topology.h"

#include <cstddef>
#include <map>
#include <utility>

#include "base/check.h"

namespace cria::comm {
namespace {

// Numbers from 0 in order of first appearance.
class Numbering {
 public:
  int Of(int64_t key) {
    return numbers_.emplace(key, static_cast<int>(numbers_.size())).first->second;
  }
  int size() const { return static_cast<int>(numbers_.size()); }

 private:
  std::map<int64_t, int> numbers_;
};

LinkCost CostOf(const ClusterLink& link) {
  return {.latency_us = link.latency_us,
          .gigabytes_per_s = link.gigabytes_per_s,
          .message_us = link.message_us};
}

}  // namespace

std::vector<int64_t> ContiguousPlacement(const Cluster& cluster, int num_ranks,
                                         int64_t ranks_per_host) {
  if (ranks_per_host == 0) ranks_per_host = cluster.ranks_per_host;
  std::vector<int64_t> host_of_rank;
  for (int rank = 0; rank < num_ranks; ++rank) host_of_rank.push_back(rank / ranks_per_host);
  return host_of_rank;
}

GroupTopology GroupTopologyOf(const Cluster& cluster, std::span<const int64_t> host_of_rank) {
  GroupTopology topology;
  topology.shm = CostOf(cluster.inside);
  topology.tcp = CostOf(cluster.link);
  topology.host_gigabytes_per_s = cluster.host_gigabytes_per_s;
  topology.reduce_gigabytes_per_s = cluster.reduce_gigabytes_per_s;
  topology.cores_per_host = static_cast<int>(cluster.cores_per_host);
  Numbering hosts;
  std::vector<int64_t> host_of_number;
  for (const int64_t host : host_of_rank) {
    CRIA_CHECK(host >= 0 && host < cluster.hosts, "host ", host, " of ", cluster.hosts);
    const int number = hosts.Of(host);
    if (static_cast<size_t>(number) == host_of_number.size()) host_of_number.push_back(host);
    topology.host_of_rank.push_back(number);
  }
  for (size_t tier = 0; tier < cluster.tiers.size(); ++tier) {
    Numbering units;
    std::vector<int> unit_of_host;
    for (const int64_t host : host_of_number) {
      unit_of_host.push_back(units.Of(cluster.UnitOf(tier, host)));
    }
    if (units.size() == 1) break;  // and one unit of all higher tiers
    topology.tier_of_host.push_back(std::move(unit_of_host));
    topology.oversubscription.push_back(cluster.tiers[tier].oversubscription);
    topology.tcp.latency_us += cluster.tiers[tier].latency_us;
  }
  return topology;
}

}  // namespace cria::comm
