// Plans by what they were built for: training calls the same few operations for ever.
// Thread-compatible. Cost of a hit on the latest plan: one comparison.

#ifndef CRIA_COMM_ENGINE_PLAN_CACHE_H_
#define CRIA_COMM_ENGINE_PLAN_CACHE_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "comm/api/operation.h"
#include "comm/plan/planner.h"

namespace cria::comm {

// Consecutive rounds of one link kind: what a transport runs at once.
struct Stretch {
  LinkKind link = LinkKind::kShm;
  std::span<const Round> rounds = {};
};
std::vector<Stretch> SplitByLink(const Plan& plan);

struct CachedPlan {
  Plan plan;
  std::vector<Stretch> stretches;
};

class PlanCache {
 public:
  // `topology` and `algorithms` outlive the cache.
  PlanCache(const GroupTopology* topology, const AlgorithmOverrides* algorithms, int rank,
            bool tcp_only);

  // The plan of an operation other than all_to_all_v, send, recv and group; a barrier's is that of
  // an all_reduce of one byte. Valid until the next call.
  StatusOr<const CachedPlan*> Find(const Operation& operation);

 private:
  struct Key {
    OpKind kind = OpKind::kGroup;
    DataType dtype = DataType::kUint8;
    ReduceOp reduce_op = ReduceOp::kSum;
    int root = -1;
    int64_t count = 0;
    std::vector<int64_t> parts;  // counts and displacements of the V kinds

    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  // More shapes than this are no loop: start again.
  static constexpr size_t kPlansMax = 512;

  static bool IsLatest(const Key& key, const Operation& operation);

  const GroupTopology* const topology_;
  const AlgorithmOverrides* const algorithms_;
  const int rank_;
  const bool tcp_only_;
  std::unordered_map<Key, CachedPlan, Hash> plans_;
  const Key* latest_key_ = nullptr;
  const CachedPlan* latest_ = nullptr;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_ENGINE_PLAN_CACHE_H_
