// LlamaConfig: the sizes of a Llama 3 model, from YAML or from Hugging Face's config.json.
//
//   CRIA_ASSIGN_OR_RETURN(LlamaConfig config, LlamaConfigFromHuggingFace("model/config.json"));
//   CRIA_RETURN_IF_ERROR(Validate(config, "model/config.json"));
//
// Thread-safe as values are. Source of the fields: research of transformers' LlamaConfig (versions
// 4 and 5: rope_theta and rope_scaling, or both inside rope_parameters).

#ifndef CRIA_MODEL_LLAMA_CONFIG_H_
#define CRIA_MODEL_LLAMA_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cria::model {

// How rotary frequencies are stretched for contexts longer than those trained on.
struct RopeScaling {
  std::string type = "default";  // "default", "linear" or "llama3"
  double factor = 1;
  // llama3 only: wavelengths over original / low_freq_factor are divided by factor, those under
  // original / high_freq_factor are kept, between them it blends.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_positions = 8192;
};

struct LlamaConfig {
  int64_t layers = 6;
  int64_t dim = 288;
  int64_t heads = 6;
  int64_t kv_heads = 6;
  int64_t head_dim = 0;  // 0: dim / heads
  int64_t ffn = 768;
  int64_t vocab = 4096;
  int64_t max_positions = 2048;
  double norm_eps = 1e-5;
  double rope_theta = 500000;
  RopeScaling rope_scaling;
  bool tied_head = true;

  int64_t HeadDim() const { return head_dim > 0 ? head_dim : dim / heads; }
  int64_t QDim() const { return heads * HeadDim(); }
  int64_t KvDim() const { return kv_heads * HeadDim(); }
};

// InvalidArgument naming `where`, the key and the numbers when the sizes can't make a model: heads
// that don't divide, an odd head_dim, a size under 1 or over the limits.
Status Validate(const LlamaConfig& config, const std::string& where);

// Reads config.json of a LlamaForCausalLM. InvalidArgument for what we can't run (another
// architecture, biases, an unknown rope_type), with the key and its value.
StatusOr<LlamaConfig> LlamaConfigFromHuggingFace(const std::string& path);

// The same from the file's text; `where` stands for the file in messages.
StatusOr<LlamaConfig> ParseHuggingFaceConfig(std::string_view text, const std::string& where);

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_CONFIG_H_
