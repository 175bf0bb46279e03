#include "model/llama/config.h"

#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace cria::model {
namespace {

// Limits against typing errors; Llama 3 405B is 126 layers, 16,384 wide.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr uint64_t kMaxFileBytes = uint64_t{16} << 20;

Status CheckRange(const std::string& where, const char* key, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return OkStatus();
  return InvalidArgumentError(where, ": ", key, ": ", value, " is not in [1, ", max, "]");
}

// The object that holds the scaling, and its place in `where`: rope_scaling of transformers 4 wins
// over rope_parameters of 5, as in transformers 5 itself. Null when there is none.
StatusOr<Json> FindRopeObject(const Json& json, const std::string& where, std::string* in) {
  Json found;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!json.contains(key) || json[key].is_null()) continue;
    if (!json[key].is_object()) {
      return InvalidArgumentError(where, ": ", key, ": want an object");
    }
    if (!found.is_null() || json[key].empty()) continue;
    found = json[key];
    *in = StrCat(where, ": ", key);
  }
  return found;
}

Status CheckWholeHeads(const Json& json, const std::string& where) {
  CRIA_ASSIGN_OR_RETURN(const double share,
                        JsonGetOr<double>(json, "partial_rotary_factor", 1.0, where));
  if (share == 1) return OkStatus();
  return InvalidArgumentError(where, ": partial_rotary_factor: ", share,
                              "; whole heads are rotated here");
}

Status ReadRope(const Json& json, const std::string& where, LlamaConfig* config) {
  // transformers 5 keeps theta and scaling in rope_parameters; 4 has rope_theta and rope_scaling.
  CRIA_ASSIGN_OR_RETURN(config->rope_theta, JsonGetOr<double>(json, "rope_theta", 10000.0, where));
  std::string in = where;
  CRIA_ASSIGN_OR_RETURN(const Json scaling, FindRopeObject(json, where, &in));
  CRIA_RETURN_IF_ERROR(CheckWholeHeads(json, where));
  if (scaling.is_null()) return OkStatus();
  CRIA_RETURN_IF_ERROR(CheckWholeHeads(scaling, in));
  CRIA_ASSIGN_OR_RETURN(config->rope_theta,
                        JsonGetOr<double>(scaling, "rope_theta", config->rope_theta, in));
  RopeScaling& rope = config->rope_scaling;
  CRIA_ASSIGN_OR_RETURN(rope.type, JsonGetOr<std::string>(scaling, "type", rope.type, in));
  CRIA_ASSIGN_OR_RETURN(rope.type, JsonGetOr<std::string>(scaling, "rope_type", rope.type, in));
  if (rope.type != "linear" && rope.type != "llama3") return OkStatus();  // see Validate
  CRIA_ASSIGN_OR_RETURN(rope.factor, JsonGet<double>(scaling, "factor", in));
  if (rope.type != "llama3") return OkStatus();
  CRIA_ASSIGN_OR_RETURN(rope.low_freq_factor, JsonGet<double>(scaling, "low_freq_factor", in));
  CRIA_ASSIGN_OR_RETURN(rope.high_freq_factor, JsonGet<double>(scaling, "high_freq_factor", in));
  CRIA_ASSIGN_OR_RETURN(rope.original_max_positions,
                        JsonGet<int64_t>(scaling, "original_max_position_embeddings", in));
  return OkStatus();
}

// Keys that change what the model computes, with the one value that we can run.
Status CheckFeatures(const Json& json, const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const std::string type, JsonGet<std::string>(json, "model_type", path));
  if (type != "llama") {
    return InvalidArgumentError(path, ": model_type: '", type, "' is not llama");
  }
  CRIA_ASSIGN_OR_RETURN(const auto architectures,
                        JsonGetOr<std::vector<std::string>>(json, "architectures", {}, path));
  for (const std::string& name : architectures) {
    if (name != "LlamaForCausalLM" && name != "LLaMAForCausalLM" && name != "LlamaModel") {
      return InvalidArgumentError(path, ": architectures: '", name, "' is not LlamaForCausalLM");
    }
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    CRIA_ASSIGN_OR_RETURN(const bool bias, JsonGetOr<bool>(json, key, false, path));
    if (bias) return InvalidArgumentError(path, ": ", key, ": true; biases are not supported");
  }
  CRIA_ASSIGN_OR_RETURN(const std::string act,
                        JsonGetOr<std::string>(json, "hidden_act", "silu", path));
  if (act != "silu") return InvalidArgumentError(path, ": hidden_act: '", act, "' is not silu");
  if (json.contains("quantization_config") && !json["quantization_config"].is_null()) {
    CRIA_ASSIGN_OR_RETURN(const std::string method,
                          JsonGetOr<std::string>(json["quantization_config"], "quant_method",
                                                 "unknown", path + ": quantization_config"));
    return InvalidArgumentError(path, ": quantization_config: quant_method '", method,
                                "' is not supported; save the model in bf16");
  }
  return OkStatus();
}

}  // namespace

Status Validate(const LlamaConfig& config, const std::string& where) {
  CRIA_RETURN_IF_ERROR(CheckRange(where, "layers", config.layers, kMaxLayers));
  CRIA_RETURN_IF_ERROR(CheckRange(where, "dim", config.dim, kMaxWidth));
  CRIA_RETURN_IF_ERROR(CheckRange(where, "heads", config.heads, kMaxWidth));
  CRIA_RETURN_IF_ERROR(CheckRange(where, "kv_heads", config.kv_heads, kMaxWidth));
  CRIA_RETURN_IF_ERROR(CheckRange(where, "ffn", config.ffn, kMaxWidth));
  CRIA_RETURN_IF_ERROR(CheckRange(where, "vocab", config.vocab, kMaxVocab));
  CRIA_RETURN_IF_ERROR(CheckRange(where, "max_positions", config.max_positions, kMaxVocab));
  if (config.head_dim == 0 && config.dim % config.heads != 0) {
    return InvalidArgumentError(where, ": heads: dim ", config.dim, " is not a multiple of heads ",
                                config.heads, " (set head_dim to choose it apart)");
  }
  const int64_t head_dim = config.head_dim != 0 ? config.head_dim : config.HeadDim();
  CRIA_RETURN_IF_ERROR(CheckRange(where, "head_dim", head_dim, 4096));
  if (config.HeadDim() % 2 != 0) {
    return InvalidArgumentError(where, ": head_dim: ", config.HeadDim(),
                                " is odd; rotary embedding needs pairs");
  }
  if (config.heads % config.kv_heads != 0) {
    return InvalidArgumentError(where, ": kv_heads: heads ", config.heads,
                                " is not a multiple of kv_heads ", config.kv_heads);
  }
  if (!(config.norm_eps > 0 && config.norm_eps < 1)) {
    return InvalidArgumentError(where, ": norm_eps: ", config.norm_eps, " is not in (0, 1)");
  }
  if (!(config.rope_theta > 1 && config.rope_theta < 1e12)) {
    return InvalidArgumentError(where, ": rope_theta: ", config.rope_theta, " is not in (1, 1e12)");
  }
  const RopeScaling& rope = config.rope_scaling;
  if (rope.type != "default" && rope.type != "linear" && rope.type != "llama3") {
    return InvalidArgumentError(where, ": rope_type: '", rope.type,
                                "' is none of default, linear, llama3");
  }
  if (!(rope.factor >= 1 && rope.factor < 1e6)) {
    return InvalidArgumentError(where, ": rope factor: ", rope.factor, " is not in [1, 1e6)");
  }
  if (rope.type == "llama3" &&
      !(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor &&
        rope.original_max_positions >= 1)) {
    return InvalidArgumentError(where, ": rope scaling: low_freq_factor ", rope.low_freq_factor,
                                ", high_freq_factor ", rope.high_freq_factor,
                                ", original_max_position_embeddings ", rope.original_max_positions,
                                ": want 0 < low < high and a positive length");
  }
  return OkStatus();
}

StatusOr<LlamaConfig> LlamaConfigFromHuggingFace(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  return ParseHuggingFaceConfig(text, path);
}

StatusOr<LlamaConfig> ParseHuggingFaceConfig(std::string_view text, const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  if (!json.is_object()) return InvalidArgumentError(path, ": want an object");
  CRIA_RETURN_IF_ERROR(CheckFeatures(json, path));
  LlamaConfig config;
  CRIA_ASSIGN_OR_RETURN(config.layers, JsonGet<int64_t>(json, "num_hidden_layers", path));
  CRIA_ASSIGN_OR_RETURN(config.dim, JsonGet<int64_t>(json, "hidden_size", path));
  CRIA_ASSIGN_OR_RETURN(config.heads, JsonGet<int64_t>(json, "num_attention_heads", path));
  CRIA_ASSIGN_OR_RETURN(config.kv_heads,
                        JsonGetOr<int64_t>(json, "num_key_value_heads", config.heads, path));
  if (json.contains("head_dim") && !json["head_dim"].is_null()) {
    CRIA_ASSIGN_OR_RETURN(config.head_dim, JsonGet<int64_t>(json, "head_dim", path));
  }
  CRIA_ASSIGN_OR_RETURN(config.ffn, JsonGet<int64_t>(json, "intermediate_size", path));
  CRIA_ASSIGN_OR_RETURN(config.vocab, JsonGet<int64_t>(json, "vocab_size", path));
  CRIA_ASSIGN_OR_RETURN(config.max_positions,
                        JsonGetOr<int64_t>(json, "max_position_embeddings", 2048, path));
  CRIA_ASSIGN_OR_RETURN(config.norm_eps, JsonGetOr<double>(json, "rms_norm_eps", 1e-6, path));
  CRIA_ASSIGN_OR_RETURN(config.tied_head,
                        JsonGetOr<bool>(json, "tie_word_embeddings", false, path));
  CRIA_RETURN_IF_ERROR(ReadRope(json, path, &config));
  CRIA_RETURN_IF_ERROR(Validate(config, path));
  return config;
}

}  // namespace cria::model
