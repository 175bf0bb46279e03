#include "comm/plan/plan_shape.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "comm/algorithms/flat.h"
#include "comm/algorithms/pairwise.h"
#include "comm/algorithms/ring.h"
#include "comm/plan/digest.h"

namespace cria::comm {
namespace {

// A cut at a multiple of a cache line: two owners never write one.
constexpr int64_t kCutBytes = 64;

int NumHosts(const GroupTopology& topology) {
  const auto& hosts = topology.host_of_rank;
  return *std::max_element(hosts.begin(), hosts.end()) + 1;
}

// The ranks with those of a host side by side, hosts of a rack side by side, and so on: a ring in
// this order crosses each border once.
std::vector<int> TierOrder(const GroupTopology& topology) {
  std::vector<int> order(static_cast<size_t>(topology.size()));
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&topology](int a, int b) {
    const auto host_a = static_cast<size_t>(topology.host_of_rank[static_cast<size_t>(a)]);
    const auto host_b = static_cast<size_t>(topology.host_of_rank[static_cast<size_t>(b)]);
    if (host_a == host_b) return false;
    for (auto tier = topology.tier_of_host.rbegin(); tier != topology.tier_of_host.rend(); ++tier) {
      if ((*tier)[host_a] != (*tier)[host_b]) return (*tier)[host_a] < (*tier)[host_b];
    }
    return host_a < host_b;
  };
  std::stable_sort(order.begin(), order.end(), before);
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

// The V kinds are the plain ones with other parts.
OpKind PlainKind(OpKind kind) {
  if (kind == OpKind::kAllGatherV) return OpKind::kAllGather;
  if (kind == OpKind::kReduceScatterV) return OpKind::kReduceScatter;
  return kind;
}

Collective MakeCollective(const PlanRequest& request, const PlanShape& shape) {
  const GroupTopology& topology = *request.topology;
  Collective c;
  c.kind = PlainKind(request.kind);
  if (shape.algorithm == Algorithm::kRing) {
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
  c.link = request.tcp_only || NumHosts(topology) > 1 ? LinkKind::kTcp : LinkKind::kShm;
  c.align = std::max<int64_t>(1, kCutBytes / ByteSize(request.dtype));
  c.num_chunks = shape.num_chunks;
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
              request.tcp_only, request.in_place});
  digest.Add(request.counts);
  digest.Add(request.displacements);
  for (const int host : request.topology->host_of_rank) digest.Add({host});
  return digest.value();
}

}  // namespace

std::string WhyNot(const PlanRequest& request, Algorithm algorithm) {
  const OpKind kind = PlainKind(request.kind);
  const bool moves_pairs =
      kind == OpKind::kAllToAll || kind == OpKind::kGather || kind == OpKind::kScatter;
  const bool integer_average =
      Reduces(kind) && request.reduce_op == ReduceOp::kAvg && request.dtype >= DataType::kInt8;
  switch (algorithm) {
    case Algorithm::kFlat:
      return "";
    case Algorithm::kRing:
      if (moves_pairs) return StrCat("has no ", Name(request.kind));
      break;
    case Algorithm::kPairwise:
      if (!moves_pairs) return StrCat("has no ", Name(request.kind));
      break;
    default:
      return "has no such plan";
  }
  if (integer_average) return "an average of integers must see all values at once";
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
  const bool moves_pairs = collective.kind == OpKind::kAllToAll ||
                           collective.kind == OpKind::kGather ||
                           collective.kind == OpKind::kScatter;
  switch (shape.algorithm) {
    case Algorithm::kFlat:
      if (collective.kind == OpKind::kAllToAll) {
        BuildTransfers(collective, Schedule::kFlat, request.in_place, {}, &builder);
      } else {
        BuildFlat(collective, &builder);
      }
      break;
    case Algorithm::kRing:
      BuildRing(collective, &builder);
      break;
    case Algorithm::kPairwise:
      CRIA_CHECK(moves_pairs);
      BuildTransfers(collective, Schedule::kPairwise, request.in_place, {}, &builder);
      break;
    default:
      CRIA_CHECK(false, "no plan by ", Name(shape.algorithm));
  }
  return plan;
}

}  // namespace cria::comm
