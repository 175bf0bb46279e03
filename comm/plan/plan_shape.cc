#include "comm/plan/plan_shape.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "comm/algorithms/flat.h"
#include "comm/algorithms/hierarchical.h"
#include "comm/algorithms/host_layout.h"
#include "comm/algorithms/pairwise.h"
#include "comm/algorithms/simple.h"
#include "comm/plan/digest.h"

namespace cria::comm {
namespace {

constexpr int64_t kCutBytes = 64;

// The ranks in the order of their hosts; those of a host in rank order.
std::vector<int> TierOrder(const GroupTopology& topology) {
  const std::vector<int> hosts = HostsInTierOrder(topology);
  std::vector<int> place(hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) {
    place[static_cast<size_t>(hosts[i])] = static_cast<int>(i);
  }
  std::vector<int> order(static_cast<size_t>(topology.size()));
  std::iota(order.begin(), order.end(), 0);
  const auto place_of = [&](int rank) {
    return place[static_cast<size_t>(topology.host_of_rank[static_cast<size_t>(rank)])];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return place_of(a) < place_of(b); });
  return order;
}

std::vector<Part> PartsByRank(const PlanRequest& request) {
  std::vector<Part> parts;
  const int n = request.topology->size();
  int64_t next = 0;
  for (int rank = 0; rank < n; ++rank) {
    const auto i = static_cast<size_t>(rank);
    const int64_t count = request.counts.empty() ? request.count : request.counts[i];
    parts.push_back({request.displacements.empty() ? next : request.displacements[i], count});
    next += count;
  }
  return parts;
}

Collective MakeCollective(const PlanRequest& request, const PlanShape& shape) {
  const GroupTopology& topology = *request.topology;
  Collective c;
  c.kind = PlainKind(request.kind);
  const bool in_tier_order = shape.algorithm == Algorithm::kRing ||
                             shape.algorithm == Algorithm::kHalvingDoubling ||
                             shape.algorithm == Algorithm::kDoubleTree;
  if (in_tier_order) {
    c.ranks = TierOrder(topology);
  } else {
    c.ranks.resize(static_cast<size_t>(topology.size()));
    std::iota(c.ranks.begin(), c.ranks.end(), 0);
  }
  const auto position = [&c](int rank) {
    return static_cast<int>(std::find(c.ranks.begin(), c.ranks.end(), rank) - c.ranks.begin());
  };
  c.self = position(request.rank);
  const bool rooted = c.kind == OpKind::kReduce || c.kind == OpKind::kBroadcast ||
                      c.kind == OpKind::kGather || c.kind == OpKind::kScatter;
  if (rooted) c.root = position(request.root);
  // Hierarchical plans add the rounds between hosts themselves, where there are two kinds.
  const bool hierarchical = shape.algorithm == Algorithm::kHierarchical &&
                            (!MovesPairs(c.kind) || NumHosts(topology) < topology.size());
  const bool inside = hierarchical || NumHosts(topology) == 1;
  c.link = inside && !request.tcp_only ? LinkKind::kShm : LinkKind::kTcp;
  c.align = CutElements(request.dtype);
  c.num_chunks = shape.num_chunks;
  c.recursive_doubling = shape.recursive_doubling;
  const bool whole =
      c.kind == OpKind::kAllReduce || c.kind == OpKind::kReduce || c.kind == OpKind::kBroadcast;
  if (whole) {
    c.count = request.count;
    return c;
  }
  const std::vector<Part> by_rank = PartsByRank(request);
  std::vector<Part> parts;
  for (const int rank : c.ranks) parts.push_back(by_rank[static_cast<size_t>(rank)]);
  c.parts = Parts::List(std::move(parts));
  c.input.own = c.kind == OpKind::kAllGather || c.kind == OpKind::kGather;
  c.output.own = c.kind == OpKind::kReduceScatter || c.kind == OpKind::kScatter;
  return c;
}

uint64_t DigestOf(const PlanRequest& request, const PlanShape& shape) {
  PlanDigest digest;
  digest.Add({static_cast<int64_t>(request.kind), static_cast<int64_t>(request.dtype),
              static_cast<int64_t>(request.reduce_op), request.count, request.root,
              request.topology->size(), static_cast<int64_t>(shape.algorithm), shape.num_chunks,
              shape.recursive_doubling, static_cast<int64_t>(shape.between), shape.tier,
              static_cast<int64_t>(shape.across), request.tcp_only});
  digest.Add(request.counts);
  digest.Add(request.displacements);
  for (const int host : request.topology->host_of_rank) digest.Add({host});
  for (const auto& units : request.topology->tier_of_host) {
    for (const int unit : units) digest.Add({unit});
  }
  return digest.value();
}

void BuildOnHosts(const PlanRequest& request, const PlanShape& shape, const Collective& collective,
                  PlanBuilder* builder) {
  const GroupTopology& topology = *request.topology;
  if (MovesPairs(collective.kind)) {
    const bool split = NumHosts(topology) > 1 && NumHosts(topology) < topology.size();
    BuildTransfers(collective, split ? Schedule::kHierarchical : Schedule::kFlat,
                   topology.host_of_rank, builder);
  } else if (NumHosts(topology) == 1) {
    BuildFlat(collective, builder);
  } else {
    const HierarchicalShape hierarchical{
        .between = shape.between,
        .num_chunks = shape.num_chunks,
        .recursive_doubling = shape.recursive_doubling,
        .hosts_per_unit = shape.tier < 0 ? 0 : HostsPerUnit(topology, shape.tier),
        .across = shape.across};
    const HostLayout layout(topology.host_of_rank, HostsInTierOrder(topology));
    BuildHierarchical(collective, layout, hierarchical, builder);
  }
}

}  // namespace

OpKind PlainKind(OpKind kind) {
  if (kind == OpKind::kAllGatherV) return OpKind::kAllGather;
  if (kind == OpKind::kReduceScatterV) return OpKind::kReduceScatter;
  return kind;
}

bool MovesPairs(OpKind kind) {
  return kind == OpKind::kAllToAll || kind == OpKind::kGather || kind == OpKind::kScatter;
}

int64_t CutElements(DataType dtype) { return kCutBytes / ByteSize(dtype); }

int NumHosts(const GroupTopology& topology) {
  const auto& hosts = topology.host_of_rank;
  return *std::max_element(hosts.begin(), hosts.end()) + 1;
}

std::vector<int> HostsInTierOrder(const GroupTopology& topology) {
  std::vector<int> order(static_cast<size_t>(NumHosts(topology)));
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&topology](int a, int b) {
    for (auto tier = topology.tier_of_host.rbegin(); tier != topology.tier_of_host.rend(); ++tier) {
      const int unit_a = (*tier)[static_cast<size_t>(a)];
      const int unit_b = (*tier)[static_cast<size_t>(b)];
      if (unit_a != unit_b) return unit_a < unit_b;
    }
    return false;
  };
  std::stable_sort(order.begin(), order.end(), before);
  return order;
}

int HostsPerUnit(const GroupTopology& topology, int tier) {
  std::map<int, int> hosts_of_unit;
  const auto& units = topology.tier_of_host[static_cast<size_t>(tier)];
  for (int host = 0; host < NumHosts(topology); ++host) {
    ++hosts_of_unit[units[static_cast<size_t>(host)]];
  }
  const int first = hosts_of_unit.begin()->second;
  for (const auto& [unit, num_hosts] : hosts_of_unit) {
    if (num_hosts != first) return 0;
  }
  return hosts_of_unit.size() == 1 ? 0 : first;
}

std::string Describe(const PlanShape& shape) {
  const auto with = [&shape](Algorithm algorithm) {
    const bool doubling = algorithm == Algorithm::kHalvingDoubling && shape.recursive_doubling;
    return doubling ? std::string("recursive doubling") : std::string(Name(algorithm));
  };
  std::string text = with(shape.algorithm);
  if (shape.algorithm == Algorithm::kHierarchical) {
    text = StrCat("hierarchical: ", with(shape.between), " between hosts");
    if (shape.tier >= 0) {
      text = StrCat("hierarchical: ", Name(shape.between), " between a unit's hosts, ",
                    with(shape.across), " between units of tier ", shape.tier);
    }
  }
  if (shape.num_chunks > 1) text += StrCat(", ", shape.num_chunks, " chunks");
  return text;
}

std::string WhyNot(const PlanRequest& request, Algorithm algorithm) {
  const OpKind kind = PlainKind(request.kind);
  bool has = HasSimple(algorithm, kind);
  if (MovesPairs(kind)) has = algorithm == Algorithm::kFlat || algorithm == Algorithm::kPairwise;
  if (algorithm == Algorithm::kHierarchical) has = true;
  if (!has) return StrCat("has no ", Name(request.kind));
  const bool integer_average =
      Reduces(kind) && request.reduce_op == ReduceOp::kAvg && request.dtype >= DataType::kInt8;
  const bool flat = algorithm == Algorithm::kFlat ||
                    (algorithm == Algorithm::kHierarchical && NumHosts(*request.topology) == 1);
  if (integer_average && !flat) return "an average of integers must see all values at once";
  return "";
}

std::string WhyNot(const PlanRequest& request, const PlanShape& shape) {
  std::string why_not = WhyNot(request, shape.algorithm);
  if (!why_not.empty()) return why_not;
  const OpKind kind = PlainKind(request.kind);
  const bool hierarchical = shape.algorithm == Algorithm::kHierarchical;
  int num_members = request.topology->size();
  if (hierarchical) {
    num_members = NumHosts(*request.topology);
    if (!MovesPairs(kind) && num_members > 1 && !HasSimple(shape.between, kind)) {
      return StrCat(Name(shape.between), " has no ", Name(kind));
    }
    if (shape.tier >= 0) {
      const int hosts = HostsPerUnit(*request.topology, shape.tier);
      if (kind != OpKind::kAllReduce) return "only all_reduce goes by tier";
      if (hosts < 2) return "the units of the tier are no pieces of one size";
      if (!HasSimple(shape.between, OpKind::kReduceScatter)) {
        return StrCat(Name(shape.between), " has no reduce_scatter");
      }
      num_members /= hosts;
    }
  }
  if (shape.recursive_doubling && (kind != OpKind::kAllReduce || num_members < 4)) {
    return "recursive doubling is for an all_reduce of 4 or more";
  }
  return "";
}

Plan BuildShape(const PlanRequest& request, const PlanShape& shape) {
  Plan plan;
  plan.algorithm = shape.algorithm;
  plan.kind = request.kind;
  plan.dtype = request.dtype;
  plan.reduce_op = request.reduce_op;
  plan.rank = request.rank;
  plan.size = request.topology->size();
  plan.count = request.count;
  for (const int64_t count : request.counts) plan.count += count;
  plan.digest = DigestOf(request, shape);
  const Collective collective = MakeCollective(request, shape);
  if (collective.root >= 0) plan.root = request.root;
  PlanBuilder builder(&plan);
  if (shape.algorithm == Algorithm::kHierarchical) {
    BuildOnHosts(request, shape, collective, &builder);
  } else if (MovesPairs(collective.kind)) {
    const bool flat = shape.algorithm == Algorithm::kFlat;
    BuildTransfers(collective, flat ? Schedule::kFlat : Schedule::kPairwise, {}, &builder);
  } else {
    BuildSimple(shape.algorithm, collective, &builder);
  }
  return plan;
}

}  // namespace cria::comm
