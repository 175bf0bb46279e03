#include "tests/unit/model/parallel/every_rank.h"

#include <algorithm>

namespace cria::model {
namespace {

bool Holds(const ParameterLayout& layout, int64_t index, int64_t row, int64_t column) {
  for (const Parameter& p : layout.parameters()) {
    if (p.index != index) continue;
    return row >= p.first_row && row < p.first_row + p.rows &&
           (p.is_vector() || (column >= p.first_column && column < p.first_column + p.columns));
  }
  return false;
}

}  // namespace

int64_t LogicalElement(const Parameter& p, int64_t i) {
  if (p.is_vector()) return p.first_row + i;
  return (p.first_row + i / p.columns) * p.full_columns + p.first_column + i % p.columns;
}

EveryRank::EveryRank(const Layout& layout, const LlamaConfig& config) {
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    layouts_.emplace_back(config, SliceOf(layout, config, rank));
  }
}

std::vector<int> EveryRank::Holders(const Parameter& parameter, int64_t logical_element) const {
  const int64_t columns = std::max<int64_t>(1, parameter.full_columns);
  std::vector<int> holders;
  for (size_t rank = 0; rank < layouts_.size(); ++rank) {
    if (Holds(layouts_[rank], parameter.index, logical_element / columns,
              logical_element % columns)) {
      holders.push_back(static_cast<int>(rank));
    }
  }
  return holders;
}

}  // namespace cria::model
