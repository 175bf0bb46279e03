#include "model/placement.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/str.h"

namespace cria::model {
namespace {

std::string Names(std::initializer_list<Placement> placements) {
  std::string names;
  for (const Placement placement : placements) {
    names += StrCat(names.empty() ? "" : " or ", PlacementName(placement));
  }
  return names;
}

}  // namespace

const char* PlacementName(Placement placement) {
  switch (placement) {
    case Placement::kReplicate:
      return "replicate";
    case Placement::kShard0:
      return "shard(0)";
    case Placement::kShard1:
      return "shard(1)";
    case Placement::kPartial:
      return "partial";
  }
  return "?";
}

void CheckPlacement(const char* op, const char* role, Placement is,
                    std::initializer_list<Placement> allowed) {
  const bool fits = std::find(allowed.begin(), allowed.end(), is) != allowed.end();
  CRIA_CHECK(fits, op, ": ", role, " is ", PlacementName(is), ", needs ", Names(allowed));
}

void CheckSamePlacement(const char* op, const char* role, Placement is, const char* other_role,
                        Placement other) {
  CRIA_CHECK(is == other, op, ": ", role, " is ", PlacementName(is), ", ", other_role, " is ",
             PlacementName(other));
}

}  // namespace cria::model
