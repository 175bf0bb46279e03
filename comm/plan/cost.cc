#include "comm/plan/cost.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "comm/algorithms/parts.h"
#include "comm/algorithms/simple.h"

namespace cria::comm {
namespace {

constexpr int kChunksMax = 64;

class ShapePricer {
 public:
  ShapePricer(const PlanRequest& request, const GroupShape& group, const PlanShape& shape)
      : request_(request), topology_(*request.topology), group_(group), shape_(shape) {
    all_.kind = PlainKind(request.kind);
    all_.num_members = group.num_ranks;
    all_.count = request.count;
    for (const int64_t count : request.counts) all_.count = std::max(all_.count, count);
    all_.align = CutElements(request.dtype);
    all_.element_bytes = static_cast<double>(ByteSize(request.dtype));
    all_.partial_bytes = static_cast<double>(ByteSize(AccumulateType(request.dtype)));
    all_.link = group.num_hosts > 1 || request.tcp_only ? LinkKind::kTcp : LinkKind::kShm;
    all_.members_per_host = group.ranks_per_host_max;
  }

  PlanCost Price() {
    const bool pairs = MovesPairs(all_.kind);
    if (shape_.algorithm == Algorithm::kHierarchical && group_.num_hosts > 1) {
      pairs ? TransfersOnHosts() : Hierarchical();
    } else if (pairs) {
      AddTransferCost(all_, shape_.algorithm == Algorithm::kPairwise, group_, topology_, &cost_);
    } else {
      const bool flat = shape_.algorithm == Algorithm::kHierarchical;  // on one host
      AddSimpleCost(flat ? Algorithm::kFlat : shape_.algorithm, all_, shape_.num_chunks,
                    shape_.recursive_doubling, group_, topology_, &cost_);
    }
    return cost_;
  }

 private:
  LinkKind inside_link() const { return request_.tcp_only ? LinkKind::kTcp : LinkKind::kShm; }
  double m() const { return group_.ranks_per_host_max; }
  double lanes() const { return group_.lanes; }
  double bytes(double elements) const { return elements * all_.element_bytes; }
  double partial(double elements) const { return elements * all_.partial_bytes; }

  void AddInside(RoundLoad load) {
    load.link = inside_link();
    if (load.bytes_sent == 0) load.bytes_sent = load.rank_bytes;
    AddRounds(load, 1, topology_, group_.cpu_factor, &cost_);
    ++cost_.rounds;
  }

  void TransfersOnHosts() {
    if (group_.num_hosts == group_.num_ranks) {
      return AddTransferCost(all_, /*pairwise=*/false, group_, topology_, &cost_);
    }
    const double part = bytes(static_cast<double>(all_.count));
    const double n = all_.num_members;
    const bool all_to_all = all_.kind == OpKind::kAllToAll;
    const bool one_sends = all_.kind == OpKind::kGather;
    AddInside({.hops = 1,
               .messages = m() - 1,
               .bytes_sent = one_sends ? part : (m() - 1) * part,
               .rank_bytes = (m() - 1) * part,
               .touched_bytes = 2 * part * (all_to_all ? m() : 1)});
    RoundLoad load{.link = LinkKind::kTcp,
                   .hops = 1,
                   .messages = n - m(),
                   .bytes_sent = one_sends ? part : (n - m()) * part,
                   .rank_bytes = (n - m()) * part};
    load.host_bytes = (all_to_all ? m() : 1) * (n - m()) * part;
    for (const int hosts : group_.hosts_per_unit) {
      const double block = hosts * m();
      const double leaving = (all_to_all ? block : 1) * std::max(0.0, n - block) * part;
      load.unit_us.push_back(leaving * 1e-3 / (topology_.HostGigabytesPerS() * hosts));
    }
    AddRounds(load, 1, topology_, group_.cpu_factor, &cost_);
    ++cost_.rounds;
  }

  double Slice() const {
    return static_cast<double>(EvenPart(all_.count, group_.lanes, all_.align, 0).count);
  }

  // One lane's operation between hosts.
  SimpleOperation Lane() const {
    SimpleOperation lane = all_;
    lane.num_members = group_.num_hosts;
    lane.link = LinkKind::kTcp;
    lane.members_per_host = 1;
    lane.lanes = group_.lanes;
    return lane;
  }

  void Between(const SimpleOperation& lane) {
    AddSimpleCost(shape_.between, lane, shape_.num_chunks, shape_.recursive_doubling, group_,
                  topology_, &cost_);
  }

  void ReduceInside() {
    const double share =
        static_cast<double>(EvenPart(all_.count, group_.ranks_per_host_max, all_.align, 0).count);
    const bool even = group_.lanes == group_.ranks_per_host_max;
    AddInside({.hops = even ? 1.0 : 2.0,
               .messages = m() - 1,
               .rank_bytes = (m() - 1) * bytes(share),
               .touched_bytes = m() * bytes(share) + partial(share),
               .reduced_bytes = (m() - 1) * bytes(share)});
  }

  void TakeSlices() {
    const bool even = group_.lanes == group_.ranks_per_host_max;
    const double taken = (lanes() - (even ? 1 : 0)) * bytes(Slice());
    AddInside({.hops = 1,
               .messages = m() - 1,
               .bytes_sent = (m() - 1) * bytes(Slice()),
               .rank_bytes = std::max((m() - 1) * bytes(Slice()), taken),
               .touched_bytes = 2 * taken});
  }

  void Hierarchical() {
    const bool inside = m() > 1;
    SimpleOperation lane = Lane();
    const bool whole = all_.kind == OpKind::kAllReduce || all_.kind == OpKind::kReduce ||
                       all_.kind == OpKind::kBroadcast;
    if (whole) lane.count = static_cast<int64_t>(Slice());
    switch (all_.kind) {
      case OpKind::kAllReduce:
        if (inside) ReduceInside();
        lane.partial_input = inside;
        shape_.tier >= 0 ? ByTier(lane) : Between(lane);
        if (inside) TakeSlices();
        return;
      case OpKind::kReduce:
        if (inside) ReduceInside();
        lane.partial_input = lane.partial_output = inside;
        Between(lane);
        if (inside) {
          AddInside({.hops = lanes() > 1 ? 1.0 : 0.0,
                     .messages = lanes() - 1,
                     .bytes_sent = bytes(Slice()),
                     .rank_bytes = (lanes() - 1) * bytes(Slice()),
                     .touched_bytes = partial(Slice()) + bytes(Slice())});
        }
        return;
      case OpKind::kBroadcast:
        if (inside) {
          AddInside({.hops = 1,
                     .messages = lanes(),
                     .rank_bytes = lanes() * bytes(Slice()),
                     .touched_bytes = 2 * bytes(Slice())});
        }
        Between(lane);
        if (inside) TakeSlices();
        return;
      case OpKind::kAllGather:
        return AllGather(lane);
      default:
        return ReduceScatter(lane);
    }
  }

  void ByTier(const SimpleOperation& lane) {
    const int hosts = group_.hosts_per_unit[static_cast<size_t>(shape_.tier)];
    SimpleOperation inside = lane;
    inside.kind = OpKind::kReduceScatter;
    inside.num_members = hosts;
    inside.count = EvenPart(lane.count, hosts, lane.align, 0).count;
    AddSimpleCost(shape_.between, inside, 1, false, group_, topology_, &cost_);
    SimpleOperation across = lane;
    across.num_members = group_.num_hosts / hosts;
    across.count = inside.count;
    across.partial_input = true;
    across.lanes = group_.lanes;
    AddAcross(across, hosts);
    inside.kind = OpKind::kAllGather;
    inside.partial_input = false;
    AddSimpleCost(shape_.between, inside, 1, false, group_, topology_, &cost_);
  }

  // Between units: all of a unit's hosts do the same at once, so that a member stands for a unit.
  void AddAcross(const SimpleOperation& across, int hosts) {
    GroupShape units = group_;
    for (int& hosts_per_unit : units.hosts_per_unit) {
      hosts_per_unit = std::max(1, hosts_per_unit / hosts);
    }
    AddSimpleCost(shape_.across, across, shape_.num_chunks, shape_.recursive_doubling, units,
                  topology_, &cost_);
  }

  // Ranks of a lane on a host, at most.
  double PerLane() const { return std::max(1.0, m() - lanes() + 1); }

  void AllGather(SimpleOperation lane) {
    const double part = bytes(static_cast<double>(all_.count));
    const double per_lane = group_.lanes == group_.ranks_per_host_max
                                ? 1
                                : std::max(1.0, (m() + lanes() - 1) / lanes());
    const double remote = (all_.num_members - m()) * part;
    if (m() > 1) {
      AddInside({.hops = 1,
                 .messages = m() - 1,
                 .rank_bytes = (m() - 1) * part,
                 .touched_bytes = (1 + m()) * part});
    }
    lane.count = static_cast<int64_t>(static_cast<double>(all_.count) * per_lane);
    Between(lane);
    if (m() > 1) {
      const bool even = group_.lanes == group_.ranks_per_host_max;
      const double taken = even ? remote * (lanes() - 1) / lanes() : remote;
      AddInside({.hops = 1,
                 .messages = (m() - 1) * (group_.num_hosts - 1),
                 .bytes_sent = (m() - 1) * remote / lanes(),
                 .rank_bytes = std::max((m() - 1) * remote / lanes(), taken),
                 .touched_bytes = 2 * taken});
    }
  }

  void ReduceScatter(SimpleOperation lane) {
    if (m() == 1) return Between(lane);
    const double part = static_cast<double>(all_.count);
    const double n = all_.num_members;
    const bool even = group_.lanes == group_.ranks_per_host_max;
    const double owned = n / m();  // parts that a rank sums up
    AddInside({.hops = even ? 1.0 : 2.0,
               .messages = n - owned,
               .rank_bytes = std::max(m() - 1, n / owned - 1) * owned * bytes(part),
               .touched_bytes = owned * (m() * bytes(part) + partial(part)),
               .reduced_bytes = (m() - 1) * owned * bytes(part)});
    const double per_lane = even ? 1 : std::max(1.0, (m() + lanes() - 1) / lanes());
    lane.count = static_cast<int64_t>(part * per_lane);
    lane.partial_input = true;
    Between(lane);
    if (!even) {
      AddInside({.hops = 1,
                 .messages = per_lane,
                 .rank_bytes = per_lane * partial(part),
                 .touched_bytes = partial(part) + bytes(part)});
    }
  }

  const PlanRequest& request_;
  const GroupTopology& topology_;
  const GroupShape& group_;
  const PlanShape& shape_;
  SimpleOperation all_;
  PlanCost cost_;
};

constexpr Algorithm kSimple[] = {Algorithm::kFlat, Algorithm::kRing, Algorithm::kHalvingDoubling,
                                 Algorithm::kDoubleTree};

// The shapes of an algorithm among `members` whose parts run by `pipeline`: numbers of chunks, or
// with recursive doubling.
void AddVariants(PlanShape shape, Algorithm pipeline, OpKind kind, int members,
                 std::vector<PlanShape>* shapes) {
  const bool pipelined = pipeline == Algorithm::kDoubleTree ||
                         (pipeline == Algorithm::kRing && kind == OpKind::kBroadcast);
  for (int chunks = 1; chunks <= (pipelined ? kChunksMax : 1); chunks *= 2) {
    shape.num_chunks = chunks;
    shapes->push_back(shape);
  }
  if (pipeline == Algorithm::kHalvingDoubling && kind == OpKind::kAllReduce && members >= 4) {
    shape.recursive_doubling = true;
    shapes->push_back(shape);
  }
}

// All shapes of an algorithm that can run this request.
std::vector<PlanShape> ShapesOf(const PlanRequest& request, const GroupShape& group,
                                Algorithm algorithm) {
  std::vector<PlanShape> shapes;
  const OpKind kind = PlainKind(request.kind);
  if (MovesPairs(kind)) return {{.algorithm = algorithm}};
  if (algorithm != Algorithm::kHierarchical) {
    AddVariants({.algorithm = algorithm}, algorithm, kind, group.num_ranks, &shapes);
    return shapes;
  }
  if (group.num_hosts == 1) return {{.algorithm = algorithm}};
  for (const Algorithm between : kSimple) {
    if (!HasSimple(between, kind)) continue;
    AddVariants({.algorithm = algorithm, .between = between}, between, kind, group.num_hosts,
                &shapes);
  }
  for (size_t tier = 0; tier < group.even_units.size(); ++tier) {
    const int hosts = group.hosts_per_unit[tier];
    if (kind != OpKind::kAllReduce || !group.even_units[tier] || hosts < 2) continue;
    for (const Algorithm between : kSimple) {
      if (!HasSimple(between, OpKind::kReduceScatter)) continue;
      for (const Algorithm across : kSimple) {
        AddVariants({.algorithm = algorithm,
                     .between = between,
                     .tier = static_cast<int>(tier),
                     .across = across},
                    across, kind, group.num_hosts / hosts, &shapes);
      }
    }
  }
  return shapes;
}

}  // namespace

PlanCost PriceShape(const PlanRequest& request, const GroupShape& group, const PlanShape& shape) {
  return ShapePricer(request, group, shape).Price();
}

std::optional<PricedShape> CheapestShape(const PlanRequest& request, const GroupShape& group,
                                         Algorithm algorithm) {
  std::optional<PricedShape> cheapest;
  if (!WhyNot(request, algorithm).empty()) return cheapest;
  for (const PlanShape& shape : ShapesOf(request, group, algorithm)) {
    const PlanCost cost = PriceShape(request, group, shape);
    if (!cheapest || cost.total_us() < cheapest->cost.total_us()) cheapest = {shape, cost};
  }
  return cheapest;
}

}  // namespace cria::comm
