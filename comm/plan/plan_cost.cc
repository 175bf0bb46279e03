#include "comm/plan/plan_cost.h"

#include <algorithm>
#include <cstddef>

namespace cria::comm {

void AddRounds(const RoundLoad& load, double repeat, const GroupTopology& topology,
               double cpu_factor, PlanCost* cost) {
  const bool shm = load.link == LinkKind::kShm;
  const LinkCost& link = shm ? topology.shm : topology.tcp;
  const double us_per_byte = 1e-3 / link.gigabytes_per_s;
  double bandwidth_us = 0;
  if (shm) {
    bandwidth_us = load.touched_bytes * us_per_byte * cpu_factor;
  } else {
    bandwidth_us = std::max(load.rank_bytes * us_per_byte,
                            load.host_bytes * 1e-3 / topology.HostGigabytesPerS());
    for (size_t tier = 0; tier < load.unit_us.size(); ++tier) {
      const double times =
          tier < topology.oversubscription.size() ? topology.oversubscription[tier] : 1;
      bandwidth_us = std::max(bandwidth_us, load.unit_us[tier] * times);
    }
  }
  cost->bytes_sent_max += repeat * load.bytes_sent;
  // Over shared memory a round has two flights: the data is ready, and it has been taken.
  const double hops = shm && load.hops > 0 ? 2 : load.hops;
  cost->latency_us +=
      repeat * (hops * link.latency_us + load.messages * link.message_us) * cpu_factor;
  cost->bandwidth_us += repeat * bandwidth_us;
  cost->reduce_us +=
      repeat * load.reduced_bytes * 1e-3 / topology.reduce_gigabytes_per_s * cpu_factor;
}

}  // namespace cria::comm
