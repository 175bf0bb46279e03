// The parameters of all ranks of a layout, as one place sees them: which ranks hold an element of
// the model, and with what each adds to its gradient. For tests that compare layouts.
//
//   const EveryRank all(layout, config);
//   for (const int rank : all.Holders(parameter, LogicalElement(parameter, i))) ...

#ifndef CRIA_TESTS_UNIT_MODEL_PARALLEL_EVERY_RANK_H_
#define CRIA_TESTS_UNIT_MODEL_PARALLEL_EVERY_RANK_H_

#include <cstdint>
#include <vector>

#include "model/llama/config.h"
#include "model/llama/parameters.h"
#include "model/parallel/mesh.h"

namespace cria::model {

// Where element i of a rank's part of a parameter is in the logical tensor.
int64_t LogicalElement(const Parameter& parameter, int64_t i);

class EveryRank {
 public:
  EveryRank(const Layout& layout, const LlamaConfig& config);

  const ParameterLayout& layout_of(int rank) const { return layouts_[static_cast<size_t>(rank)]; }
  // World ranks, ascending. `parameter` is any rank's part of the tensor.
  std::vector<int> Holders(const Parameter& parameter, int64_t logical_element) const;

 private:
  std::vector<ParameterLayout> layouts_;
};

}  // namespace cria::model

#endif  // CRIA_TESTS_UNIT_MODEL_PARALLEL_EVERY_RANK_H_
