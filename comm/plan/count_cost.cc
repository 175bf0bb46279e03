#include "comm/plan/count_cost.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace cria::comm {
namespace {

struct Traffic {
  double in = 0;
  double out = 0;
  double most() const { return std::max(in, out); }
};

double SlotBytes(const Plan& plan, Slot slot) {
  const bool partial = slot == Slot::kScratch && Reduces(plan.kind);
  return static_cast<double>(ByteSize(partial ? AccumulateType(plan.dtype) : plan.dtype));
}

// One round of all ranks, being counted.
class RoundCounter {
 public:
  RoundCounter(size_t num_ranks, const GroupTopology& topology)
      : topology_(topology),
        bytes_(num_ranks),
        messages_(num_ranks),
        touched_(num_ranks, 0),
        reduced_(num_ranks, 0),
        unit_bytes_(topology.tier_of_host.size()) {}

  void AddTask(const Plan& plan, const Task& task) {
    const auto owner = static_cast<size_t>(task.owner);
    bool receives = false, sends = false;
    for (const Region& source : task.sources) {
      const double bytes = static_cast<double>(task.count) * SlotBytes(plan, source.slot);
      touched_[owner] += bytes;
      receives |= Move(source.rank, task.owner, bytes);
    }
    for (const Region& target : task.targets) {
      const double bytes = static_cast<double>(task.count) * SlotBytes(plan, target.slot);
      touched_[owner] += bytes;
      sends |= Move(task.owner, target.rank, bytes);
    }
    reduced_[owner] += static_cast<double>(task.sources.size() - 1) *
                       static_cast<double>(task.count) * static_cast<double>(ByteSize(plan.dtype));
    hops_ = std::max(hops_, (receives ? 1.0 : 0.0) + (sends ? 1.0 : 0.0));
  }

  RoundLoad Load(LinkKind link, const std::vector<std::map<int, int>>& hosts_of_unit) const {
    RoundLoad load{.link = link, .hops = hops_};
    for (size_t r = 0; r < bytes_.size(); ++r) {
      load.messages = std::max(load.messages, messages_[r].most());
      load.bytes_sent = std::max(load.bytes_sent, bytes_[r].out);
      load.rank_bytes = std::max(load.rank_bytes, bytes_[r].most());
      load.touched_bytes = std::max(load.touched_bytes, touched_[r]);
      load.reduced_bytes = std::max(load.reduced_bytes, reduced_[r]);
    }
    for (const auto& [host, traffic] : host_bytes_) {
      load.host_bytes = std::max(load.host_bytes, traffic.most());
    }
    for (size_t tier = 0; tier < unit_bytes_.size(); ++tier) {
      double most_us = 0;
      for (const auto& [unit, traffic] : unit_bytes_[tier]) {
        const double hosts = hosts_of_unit[tier].at(unit);
        most_us =
            std::max(most_us, traffic.most() * 1e-3 / (topology_.HostGigabytesPerS() * hosts));
      }
      load.unit_us.push_back(most_us);
    }
    return load;
  }

 private:
  // True when the bytes go from one rank to another.
  bool Move(int from, int to, double bytes) {
    if (from == to) return false;
    const auto f = static_cast<size_t>(from), t = static_cast<size_t>(to);
    bytes_[f].out += bytes;
    bytes_[t].in += bytes;
    ++messages_[f].out;
    ++messages_[t].in;
    const int host_from = topology_.host_of_rank[f], host_to = topology_.host_of_rank[t];
    Leave(host_from, host_to, bytes, &host_bytes_);
    for (size_t tier = 0; tier < unit_bytes_.size(); ++tier) {
      const auto& units = topology_.tier_of_host[tier];
      Leave(units[static_cast<size_t>(host_from)], units[static_cast<size_t>(host_to)], bytes,
            &unit_bytes_[tier]);
    }
    return true;
  }

  static void Leave(int from, int to, double bytes, std::map<int, Traffic>* traffic) {
    if (from == to) return;
    (*traffic)[from].out += bytes;
    (*traffic)[to].in += bytes;
  }

  const GroupTopology& topology_;
  std::vector<Traffic> bytes_, messages_;
  std::vector<double> touched_, reduced_;
  std::map<int, Traffic> host_bytes_;
  std::vector<std::map<int, Traffic>> unit_bytes_;  // by tier
  double hops_ = 0;
};

}  // namespace

PlanCost CountCost(std::span<const Plan> plans, const GroupTopology& topology) {
  std::map<int, int> ranks_of_host;
  int ranks_max = 0;
  for (const int host : topology.host_of_rank) {
    ranks_max = std::max(ranks_max, ++ranks_of_host[host]);
  }
  std::vector<std::map<int, int>> hosts_of_unit(topology.tier_of_host.size());
  for (size_t tier = 0; tier < hosts_of_unit.size(); ++tier) {
    for (const auto& [host, ranks] : ranks_of_host) {
      ++hosts_of_unit[tier][topology.tier_of_host[tier][static_cast<size_t>(host)]];
    }
  }
  PlanCost cost;
  cost.rounds = static_cast<int>(plans[0].rounds.size());
  for (size_t round = 0; round < plans[0].rounds.size(); ++round) {
    RoundCounter counter(plans.size(), topology);
    for (const Plan& plan : plans) {
      for (const Task& task : plan.rounds[round].tasks) {
        if (task.owner == plan.rank) counter.AddTask(plan, task);
      }
    }
    AddRounds(counter.Load(plans[0].rounds[round].link, hosts_of_unit), 1, topology,
              CpuFactor(topology, ranks_max), &cost);
  }
  return cost;
}

}  // namespace cria::comm
