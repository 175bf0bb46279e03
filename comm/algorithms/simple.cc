#include "comm/algorithms/simple.h"

#include "base/check.h"
#include "comm/algorithms/double_tree.h"
#include "comm/algorithms/flat.h"
#include "comm/algorithms/halving_doubling.h"
#include "comm/algorithms/ring.h"

namespace cria::comm {

bool HasSimple(Algorithm algorithm, OpKind kind) {
  const bool whole =
      kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kBroadcast;
  const bool parts = kind == OpKind::kAllGather || kind == OpKind::kReduceScatter;
  switch (algorithm) {
    case Algorithm::kFlat:
    case Algorithm::kRing:
    case Algorithm::kHalvingDoubling:
      return whole || parts;
    case Algorithm::kDoubleTree:
      return whole;
    default:
      return false;
  }
}

void BuildSimple(Algorithm algorithm, const Collective& collective, PlanBuilder* builder) {
  switch (algorithm) {
    case Algorithm::kFlat:
      return BuildFlat(collective, builder);
    case Algorithm::kRing:
      return BuildRing(collective, builder);
    case Algorithm::kHalvingDoubling:
      return BuildHalvingDoubling(collective, builder);
    case Algorithm::kDoubleTree:
      return BuildDoubleTree(collective, builder);
    default:
      CRIA_CHECK(false, Name(algorithm), " knows hosts");
  }
}

}  // namespace cria::comm
