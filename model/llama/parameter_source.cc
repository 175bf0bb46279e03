#include "model/llama/parameter_source.h"

#include <algorithm>

#include "base/check.h"

namespace cria::model {

ParameterSource::ParameterSource(const ParameterLayout& layout, const Tensor& weights,
                                 const std::string& name)
    : layout_(layout), values_(weights), name_(name) {
  CRIA_CHECK_EQ(weights.num_elements(), layout.num_elements());
  for (const Parameter& p : layout.parameters()) {
    infos_.push_back({.name = p.name, .dtype = StDtype::kF32, .shape = p.shape()});
  }
  std::sort(infos_.begin(), infos_.end(),
            [](const WeightInfo& a, const WeightInfo& b) { return a.name < b.name; });
}

Status ParameterSource::ReadRows(const WeightInfo& weight, int64_t begin, int64_t end,
                                 StDtype dtype, void* to) const {
  const Parameter* parameter = layout_.Find(weight.name);
  CRIA_CHECK(parameter != nullptr && begin >= 0 && end <= weight.rows(), weight.name, " rows ",
             begin, " to ", end);
  const int64_t columns = weight.columns();
  return ConvertElements(StDtype::kF32, values_.f32() + parameter->offset + begin * columns,
                         (end - begin) * columns, dtype, to);
}

}  // namespace cria::model
