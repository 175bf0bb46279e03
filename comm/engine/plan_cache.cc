#include "comm/engine/plan_cache.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/hash.h"

namespace cria::comm {

std::vector<Stretch> SplitByLink(const Plan& plan) {
  std::vector<Stretch> stretches;
  const std::span<const Round> rounds = plan.rounds;
  size_t start = 0;
  for (size_t i = 1; i <= rounds.size(); ++i) {
    if (i < rounds.size() && rounds[i].link == rounds[start].link) continue;
    stretches.push_back({rounds[start].link, rounds.subspan(start, i - start)});
    start = i;
  }
  return stretches;
}

PlanCache::PlanCache(const GroupTopology* topology, const AlgorithmOverrides* algorithms, int rank,
                     bool tcp_only)
    : topology_(topology), algorithms_(algorithms), rank_(rank), tcp_only_(tcp_only) {}

size_t PlanCache::Hash::operator()(const Key& key) const {
  const int64_t head[] = {static_cast<int64_t>(key.kind), static_cast<int64_t>(key.dtype),
                          static_cast<int64_t>(key.reduce_op), key.root, key.count};
  const uint64_t hash = Hash64(std::string_view(reinterpret_cast<const char*>(head), sizeof(head)));
  return Hash64(std::string_view(reinterpret_cast<const char*>(key.parts.data()),
                                 key.parts.size() * sizeof(int64_t)),
                hash);
}

bool PlanCache::IsLatest(const Key& key, const Operation& operation) {
  return key.kind == operation.kind && key.count == operation.count &&
         key.dtype == operation.dtype && key.reduce_op == operation.reduce_op &&
         key.root == operation.root_or_peer && key.parts.empty() && operation.send_counts.empty() &&
         operation.recv_counts.empty();
}

StatusOr<const CachedPlan*> PlanCache::Find(const Operation& operation) {
  if (latest_ != nullptr && IsLatest(*latest_key_, operation)) return latest_;
  const bool gathers = operation.kind == OpKind::kAllGatherV;
  const std::span<const int64_t> counts = gathers ? operation.recv_counts : operation.send_counts;
  const std::span<const int64_t> displacements =
      gathers ? operation.recv_displacements : operation.send_displacements;
  Key key{.kind = operation.kind,
          .dtype = operation.dtype,
          .reduce_op = operation.reduce_op,
          .root = std::max(0, operation.root_or_peer),
          .count = operation.count,
          .parts = {counts.begin(), counts.end()}};
  key.parts.insert(key.parts.end(), displacements.begin(), displacements.end());
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    const PlanRequest request{.kind = operation.kind,
                              .dtype = operation.dtype,
                              .reduce_op = operation.reduce_op,
                              .count = operation.count,
                              .root = std::max(0, operation.root_or_peer),
                              .counts = counts,
                              .displacements = displacements,
                              .topology = topology_,
                              .rank = rank_,
                              .tcp_only = tcp_only_};
    CRIA_ASSIGN_OR_RETURN(Plan plan, BuildPlan(request, *algorithms_));
    if (plans_.size() >= kPlansMax) plans_.clear();
    found = plans_.emplace(std::move(key), CachedPlan{std::move(plan), {}}).first;
    found->second.stretches = SplitByLink(found->second.plan);
  }
  latest_key_ = &found->first;
  latest_ = &found->second;
  return latest_;
}

}  // namespace cria::comm
