#include "model/llama/load_weights.h"

#include <cstring>

namespace cria::model {
namespace {

// n numbers of a tensor as fp32; the file's bytes need not be aligned.
Status CopyAsF32(const SafetensorsFile& file, const TensorInfo& info, int64_t n, float* to) {
  const std::string_view bytes = file.Data(info);
  if (info.dtype == StDtype::kF32) {
    std::memcpy(to, bytes.data(), bytes.size());
    return OkStatus();
  }
  if (info.dtype != StDtype::kBF16) {
    return InvalidArgumentError(file.path(), ": tensor ", info.name, " is ",
                                StDtypeName(info.dtype), "; F32 or BF16 can be read");
  }
  for (int64_t i = 0; i < n; ++i) {
    uint16_t half;
    std::memcpy(&half, bytes.data() + 2 * i, 2);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    std::memcpy(to + i, &bits, 4);
  }
  return OkStatus();
}

constexpr const char* kHead = "lm_head.weight";

// A tied head may be in the file as well; it must then be the embedding.
Status CheckTiedHead(const SafetensorsFile& file, const ParameterLayout& layout,
                     const std::string& prefix) {
  const TensorInfo* head = file.Find(prefix + kHead);
  if (head == nullptr || layout.Find(kHead) != nullptr) return OkStatus();
  const TensorInfo* embedding = file.Find(prefix + "model.embed_tokens.weight");
  if (embedding == nullptr || file.Data(*head) != file.Data(*embedding)) {
    return InvalidArgumentError(file.path(), ": the model ties its head to the embedding, but ",
                                head->name, " differs from it");
  }
  return OkStatus();
}

}  // namespace

Status LoadWeights(const SafetensorsFile& file, const ParameterLayout& layout, const Tensor& values,
                   const std::string& prefix) {
  for (const Parameter& parameter : layout.parameters()) {
    const std::string name = prefix + parameter.name;
    const TensorInfo* info = file.Find(name);
    if (info == nullptr) return NotFoundError(file.path(), ": no tensor ", name);
    if (info->shape != parameter.shape()) {
      return InvalidArgumentError(file.path(), ": tensor ", name, " is ",
                                  DescribeTensor(info->dtype, info->shape), "; the model wants ",
                                  DescribeTensor(StDtype::kF32, parameter.shape()));
    }
    CRIA_RETURN_IF_ERROR(
        CopyAsF32(file, *info, parameter.num_elements(), values.f32() + parameter.offset));
  }
  for (const TensorInfo& info : file.tensors()) {
    if (info.name.substr(0, prefix.size()) != prefix) continue;
    const std::string name = info.name.substr(prefix.size());
    const bool known = layout.Find(name) != nullptr || name == kHead ||
                       name.find("rotary_emb.inv_freq") != std::string::npos;
    if (!known) return InvalidArgumentError(file.path(), ": unknown tensor ", info.name);
  }
  return CheckTiedHead(file, layout, prefix);
}

}  // namespace cria::model
