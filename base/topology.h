// The description of a cluster: its hosts, how they hang together, what a link gives.
//
//   CRIA_ASSIGN_OR_RETURN(const Cluster cluster, ReadCluster("llama3_24k"));
//   cluster.UnitOf(/*tier=*/1, /*host=*/500)    // its pod: 1
//
// A file of configs/clusters, or a path:
//
//   hosts: 3072                  # or host_names: [a, b, c]
//   ranks_per_host: 8            # GPUs, or processes on CPUs
//   cores_per_host: 96           # 0: as many as ranks
//   inside: {latency_us: 3, gigabytes_per_s: 450, message_us: 1}   # ranks of one host
//   link: {latency_us: 5, gigabytes_per_s: 50, message_us: 1}      # a rank's to the network
//   host_gigabytes_per_s: 400    # all of a host's ranks together; 0: as much as one rank
//   reduce_gigabytes_per_s: 1500
//   tiers: [rack, pod]           # from the hosts up; each has a section:
//   rack: {hosts: 2, oversubscription: 1, latency_us: 1}
//   pod: {hosts: 384, oversubscription: 7, latency_us: 5}
//
// A unit of a tier is so many neighbouring hosts. oversubscription: how many times less bandwidth
// leaves a unit than its hosts have together; latency_us: more for what crosses the unit's border.
// Who reads it: the collectives' planner (comm/plan), the fabric simulator, the scheduler.
// Thread-safe: a value.

#ifndef CRIA_BASE_TOPOLOGY_H_
#define CRIA_BASE_TOPOLOGY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace cria {

struct ClusterLink {
  double latency_us = 0;
  double gigabytes_per_s = 0;
  double message_us = 0;  // of CPU (or proxy) time that a message costs
};

struct ClusterTier {
  std::string name = {};
  int64_t hosts = 0;  // in a unit
  double oversubscription = 1;
  double latency_us = 0;
};

struct Cluster {
  std::string name = {};  // the file's, without folder and ending
  int64_t hosts = 1;
  std::vector<std::string> host_names = {};  // empty, or as many as hosts
  int64_t ranks_per_host = 1;
  int64_t cores_per_host = 0;
  ClusterLink inside = {.latency_us = 0.15, .gigabytes_per_s = 16, .message_us = 0.02};
  ClusterLink link = {.latency_us = 10, .gigabytes_per_s = 2, .message_us = 2.5};
  double host_gigabytes_per_s = 0;
  double reduce_gigabytes_per_s = 16;
  std::vector<ClusterTier> tiers = {};  // from the hosts up; each unit is made of whole lower ones

  int64_t num_ranks() const { return hosts * ranks_per_host; }
  // The unit of a tier that a host is in.
  int64_t UnitOf(size_t tier, int64_t host) const { return host / tiers[tier].hosts; }
};

// A path, or the name of a file in configs/clusters (base/config.h, FindConfigFile). NotFound, or
// InvalidArgument with file, line and key: unknown and missing keys, values out of range, tiers
// that are no multiples of each other.
StatusOr<Cluster> ReadCluster(const std::string& file);

// The same from text; `name` stands for the file in messages.
StatusOr<Cluster> ParseCluster(const std::string& text, const std::string& name);

}  // namespace cria

#endif  // CRIA_BASE_TOPOLOGY_H_
