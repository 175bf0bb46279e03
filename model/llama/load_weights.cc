#include "model/llama/load_weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/parallel.h"

namespace cria::model {
namespace {

constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr int64_t kBlockElements = int64_t{1} << 20;

int64_t RowsOfBlock(const WeightInfo& weight) {
  return std::max<int64_t>(1, kBlockElements / std::max<int64_t>(1, weight.columns()));
}

// A tied head may be in the file as well; it must then be the embedding.
Status CheckTiedHead(const WeightSource& source, const ParameterLayout& layout) {
  const WeightInfo* head = source.Find(kHead);
  if (head == nullptr || layout.Find(kHead) != nullptr) return OkStatus();
  const WeightInfo* embedding = source.Find(kEmbedding);
  if (head->shape != embedding->shape) {
    return InvalidArgumentError(source.path(), ": the model ties its head to the embedding, but ",
                                kHead, " is ", DescribeTensor(head->dtype, head->shape), ", ",
                                kEmbedding, " ",
                                DescribeTensor(embedding->dtype, embedding->shape));
  }
  // As the same type's bits where they have one, so that a NaN equals itself.
  const StDtype dtype = head->dtype == embedding->dtype ? head->dtype : StDtype::kF32;
  const int64_t row_bytes = head->columns() * StDtypeBits(dtype) / 8;
  const int64_t step = RowsOfBlock(*head);
  std::string a(static_cast<size_t>(std::min(step, head->rows()) * row_bytes), '\0');
  std::string b(a.size(), '\0');
  for (int64_t row = 0; row < head->rows(); row += step) {
    const int64_t end = std::min(row + step, head->rows());
    CRIA_RETURN_IF_ERROR(source.ReadRows(*head, row, end, dtype, a.data()));
    CRIA_RETURN_IF_ERROR(source.ReadRows(*embedding, row, end, dtype, b.data()));
    for (int64_t i = row; i < end; ++i) {
      const auto at = static_cast<size_t>((i - row) * row_bytes);
      if (std::memcmp(&a[at], &b[at], static_cast<size_t>(row_bytes)) == 0) continue;
      return InvalidArgumentError(source.path(), ": the model ties its head to the embedding, but ",
                                  kHead, " differs from ", kEmbedding, " in row ", i);
    }
  }
  return OkStatus();
}

// One parameter, in blocks of rows on all threads.
Status LoadParameter(const WeightSource& source, const WeightInfo& weight, float* to) {
  const int64_t step = RowsOfBlock(weight);
  const int64_t num_blocks = (weight.rows() + step - 1) / step;
  std::vector<Status> results(static_cast<size_t>(num_blocks));
  ParallelFor(num_blocks, [&](int64_t block) {
    const int64_t begin = block * step;
    const int64_t end = std::min(begin + step, weight.rows());
    results[static_cast<size_t>(block)] =
        source.ReadRows(weight, begin, end, StDtype::kF32, to + begin * weight.columns());
  });
  for (const Status& result : results) CRIA_RETURN_IF_ERROR(result);
  return OkStatus();
}

}  // namespace

Status CheckWeights(const WeightSource& source, const ParameterLayout& layout) {
  for (const Parameter& parameter : layout.parameters()) {
    const WeightInfo* weight = source.Find(parameter.name);
    if (weight == nullptr) return NotFoundError(source.path(), ": no weight ", parameter.name);
    if (weight->shape != parameter.shape()) {
      return InvalidArgumentError(
          source.path(), ": ", parameter.name, " is ", DescribeTensor(weight->dtype, weight->shape),
          "; the model wants ", DescribeTensor(weight->dtype, parameter.shape()));
    }
  }
  for (const WeightInfo& weight : source.weights()) {
    if (weight.name != kHead && layout.Find(weight.name) == nullptr) {
      return InvalidArgumentError(source.path(), ": unknown weight ", weight.name);
    }
  }
  return CheckTiedHead(source, layout);
}

Status LoadWeights(const WeightSource& source, const ParameterLayout& layout,
                   const Tensor& values) {
  CRIA_RETURN_IF_ERROR(CheckWeights(source, layout));
  for (const Parameter& parameter : layout.parameters()) {
    CRIA_RETURN_IF_ERROR(
        LoadParameter(source, *source.Find(parameter.name), values.f32() + parameter.offset));
  }
  return OkStatus();
}

}  // namespace cria::model
