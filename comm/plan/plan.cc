#include "comm/plan/plan.h"

#include <array>
#include <cstddef>

namespace cria::comm {

const char* Name(Algorithm algorithm) {
  constexpr std::array<const char*, kNumAlgorithms> kNames = {
      "flat", "ring", "halving_doubling", "double_tree", "hierarchical", "pairwise"};
  return kNames[static_cast<size_t>(algorithm)];
}

}  // namespace cria::comm
