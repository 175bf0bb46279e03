// What an algorithm and the cost model know of a group: which ranks share a host, and what the
// links between them cost. Built from the rank map (engine/) or from a cluster description
// (base/topology.h) for plans of machines that are not here.
// Thread-safe: a value.

#ifndef CRIA_COMM_PLAN_GROUP_TOPOLOGY_H_
#define CRIA_COMM_PLAN_GROUP_TOPOLOGY_H_

#include <cstdint>
#include <vector>

namespace cria::comm {

// A link as the cost model sees it: a message of b bytes takes latency_us + b / (gigabytes_per_s *
// 1000) microseconds, alone on the link; each message costs its sender and its receiver
// message_us of their time, so that many at once are not free.
struct LinkCost {
  double latency_us = 0;
  double gigabytes_per_s = 0;
  double message_us = 0;
};

struct GroupTopology {
  // The host of each rank of the group, numbered from 0 in order of first appearance.
  std::vector<int> host_of_rank = {};
  // Above hosts: the rack (or zone) of each host, and so on; may be empty. tier_of_host[t][h].
  std::vector<std::vector<int>> tier_of_host = {};
  LinkCost shm = {0.15, 16.0, 0.02};  // inside a host; per rank, of what it reads and writes
  LinkCost tcp = {10.0, 2.0, 2.5};    // between hosts; per rank
  // What leaves a host, of all its ranks together; 0: as much as tcp says of one rank.
  double host_gigabytes_per_s = 0;
  // By tier of tier_of_host: how many times less bandwidth leaves a unit of that tier than its
  // hosts have together (7 for the 1:7 of Llama 3's aggregation layer); 1: none.
  std::vector<double> oversubscription = {};
  // gigabytes/s at which one rank combines two arrays in memory.
  double reduce_gigabytes_per_s = 16.0;
  // Cores of a host: more ranks than cores take turns.
  int cores_per_host = 0;  // 0: unknown, as many as ranks

  double HostGigabytesPerS() const {
    return host_gigabytes_per_s > 0 ? host_gigabytes_per_s : tcp.gigabytes_per_s;
  }
  int size() const { return static_cast<int>(host_of_rank.size()); }
};

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_GROUP_TOPOLOGY_H_
