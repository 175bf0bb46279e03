// WeightSource: a model's weights in some file, under Hugging Face's names and row order, whatever
// the file's own are.
//
// Readers of formats implement it (safetensors folders, GGUF, Meta's checkpoints, a training run);
// loading, export and the decoder read through it, so each format is known in one place.
//
//   for (const WeightInfo& w : source.weights()) {
//     std::vector<float> row(static_cast<size_t>(w.columns()));
//     CRIA_RETURN_IF_ERROR(source.ReadRows(w, 0, 1, StDtype::kF32, row.data()));
//   }
//
// Implementations are thread-safe for reading.

#ifndef CRIA_MODEL_IO_WEIGHT_SOURCE_H_
#define CRIA_MODEL_IO_WEIGHT_SOURCE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/io/safetensors.h"

namespace cria::model {

struct WeightInfo {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  // The plain type that holds every value exactly: the file's own, or F32 for a quantised one.
  StDtype dtype = StDtype::kF32;
  std::vector<int64_t> shape;  // [rows, columns], or [rows]

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t columns() const;  // elements of a row
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The file or folder, for messages.
  virtual const std::string& path() const = 0;

  // All weights, sorted by name.
  virtual const std::vector<WeightInfo>& weights() const = 0;

  // Rows [begin, end) of a weight of this source, row-major, as `dtype` (F32, BF16, F16, or the
  // weight's own, which copies bits) to `to`, which has room for them. Rounds to nearest, ties to
  // even. InvalidArgument for a conversion that does not exist; the file's errors.
  virtual Status ReadRows(const WeightInfo& weight, int64_t begin, int64_t end, StDtype dtype,
                          void* to) const = 0;

  // Null when there is none of that name. O(log n).
  const WeightInfo* Find(std::string_view name) const;
};

// n elements of `from` (F64, F32, F16, BF16, F8_E4M3, F8_E5M2) as `to` (F32, BF16, F16, or the same
// type). InvalidArgument for another pair.
Status ConvertElements(StDtype from_type, const void* from, int64_t n, StDtype to_type, void* to);

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_WEIGHT_SOURCE_H_
