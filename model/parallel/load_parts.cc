#include "model/parallel/load_parts.h"

#include <algorithm>
#include <vector>

#include "model/llama/load_weights.h"
#include "model/llama/parameters.h"

namespace cria::model {
namespace {

constexpr int64_t kBlockElements = int64_t{1} << 20;

// Elements [kept.begin, kept.begin + n) of the rank's part, from blocks of whole rows.
Status LoadPart(const WeightSource& source, const Parameter& parameter,
                const ParameterBuffers::Kept& kept) {
  const int64_t n = kept.values.num_elements();
  if (n == 0) return OkStatus();
  const WeightInfo& weight = *source.Find(parameter.name);
  const int64_t full_columns = weight.columns();
  // Of a vector, which has as many rows or columns as its elements.
  const int64_t columns = parameter.columns > 0 ? parameter.columns : full_columns;
  const int64_t first_row = parameter.columns > 0 ? parameter.first_row : 0;
  const int64_t begin = kept.begin / columns, end = (kept.begin + n - 1) / columns + 1;
  const int64_t step = std::max<int64_t>(1, kBlockElements / full_columns);
  std::vector<float> block(static_cast<size_t>(std::min(step, end - begin) * full_columns));
  for (int64_t row = begin; row < end; row += step) {
    const int64_t block_end = std::min(row + step, end);
    CRIA_RETURN_IF_ERROR(source.ReadRows(weight, first_row + row, first_row + block_end,
                                         StDtype::kF32, block.data()));
    for (int64_t r = row; r < block_end; ++r) {
      const int64_t from = std::max(kept.begin, r * columns);
      const int64_t to = std::min(kept.begin + n, (r + 1) * columns);
      const float* values =
          block.data() + (r - row) * full_columns + parameter.first_column + (from - r * columns);
      std::copy_n(values, to - from, kept.values.f32() + (from - kept.begin));
    }
  }
  return OkStatus();
}

}  // namespace

Status LoadParts(const WeightSource& source, const LlamaConfig& config, ParameterBuffers* buffers) {
  CRIA_RETURN_IF_ERROR(CheckWeights(source, ParameterLayout(config)));
  for (const Parameter& parameter : buffers->layout().parameters()) {
    CRIA_RETURN_IF_ERROR(LoadPart(source, parameter, buffers->KeptOf(parameter)));
  }
  buffers->WeightsChanged();
  return OkStatus();
}

}  // namespace cria::model
