#include "model/io/meta_params.h"

#include <algorithm>
#include <array>

#include "base/json.h"

namespace cria::model {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;

constexpr const char* kKnownKeys[] = {
    "dim",
    "ffn_dim_multiplier",
    "multiple_of",
    "n_heads",
    "n_kv_heads",
    "n_layers",
    "norm_eps",
    "rope_theta",
    "vocab_size",
    "use_scaled_rope",
    "rope_scaling_factor",
    "rope_high_freq_factor",
    "max_batch_size",
    "max_seq_len",
    // Of how the checkpoint was made or is to be run, not of the model.
    "model_parallel_size",
    "vision_chunk_size",
    "vision_max_num_chunks",
};

Status CheckKeys(const Json& json, const std::string& where) {
  if (!json.is_object()) return InvalidArgumentError(where, ": want an object");
  for (const auto& [key, value] : json.items()) {
    const bool known = std::any_of(std::begin(kKnownKeys), std::end(kKnownKeys),
                                   [&key = key](const char* k) { return key == k; });
    if (known || value.is_null()) continue;
    const std::string shown = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return InvalidArgumentError(where, ": ", key.substr(0, 80), ": ", shown.substr(0, 80),
                                ": a key that is not known here; it may change the model");
  }
  return OkStatus();
}

StatusOr<int64_t> Size(const Json& json, const char* key, const std::string& where) {
  CRIA_ASSIGN_OR_RETURN(const auto value, JsonGet<int64_t>(json, key, where));
  if (value >= 1 && value <= kMaxWidth) return value;
  return InvalidArgumentError(where, ": ", key, ": ", value, " is not in [1, ", kMaxWidth, "]");
}

// hidden = int(2/3 of 4 dim), times ffn_dim_multiplier, rounded up to multiple_of.
StatusOr<int64_t> FfnSize(const Json& json, int64_t dim, const std::string& where) {
  CRIA_ASSIGN_OR_RETURN(const auto multiple_of,
                        JsonGetOr<int64_t>(json, "multiple_of", 256, where));
  if (multiple_of < 1 || multiple_of > kMaxWidth) {
    return InvalidArgumentError(where, ": multiple_of: ", multiple_of, " is not in [1, ", kMaxWidth,
                                "]");
  }
  int64_t hidden = 8 * dim / 3;
  if (json.contains("ffn_dim_multiplier") && !json["ffn_dim_multiplier"].is_null()) {
    CRIA_ASSIGN_OR_RETURN(const auto multiplier,
                          JsonGet<double>(json, "ffn_dim_multiplier", where));
    if (!(multiplier > 0 && multiplier < 1000)) {
      return InvalidArgumentError(where, ": ffn_dim_multiplier: ", multiplier,
                                  " is not in (0, 1000)");
    }
    hidden = static_cast<int64_t>(multiplier * static_cast<double>(hidden));
  }
  return (hidden + multiple_of - 1) / multiple_of * multiple_of;
}

// Llama 3.2 1B and 3B were stretched by 32; nothing in their files says so.
bool IsLlama32Text(const LlamaConfig& c) {
  const std::array<int64_t, 4> sizes = {c.dim, c.layers, c.heads, c.kv_heads};
  return sizes == std::array<int64_t, 4>{2048, 16, 32, 8} ||
         sizes == std::array<int64_t, 4>{3072, 28, 24, 8};
}

Status ReadRope(const Json& json, const std::string& where, const MetaOptions& options,
                LlamaConfig* config) {
  CRIA_ASSIGN_OR_RETURN(config->rope_theta, JsonGetOr<double>(json, "rope_theta", 10000.0, where));
  config->max_positions = config->rope_theta >= 500000 ? 8192 : 4096;
  CRIA_ASSIGN_OR_RETURN(const bool scaled, JsonGetOr<bool>(json, "use_scaled_rope", false, where));
  if (!scaled) {
    if (!options.rope_factor) return OkStatus();
    return InvalidArgumentError(where, ": a rope factor of ", *options.rope_factor,
                                " was asked for, but use_scaled_rope is not true");
  }
  config->max_positions = 131072;
  RopeScaling& rope = config->rope_scaling;
  rope.type = "llama3";
  const double usual = IsLlama32Text(*config) ? 32 : 8;
  CRIA_ASSIGN_OR_RETURN(rope.factor, JsonGetOr<double>(json, "rope_scaling_factor", usual, where));
  if (options.rope_factor) rope.factor = *options.rope_factor;
  rope.low_freq_factor = 1;
  CRIA_ASSIGN_OR_RETURN(rope.high_freq_factor,
                        JsonGetOr<double>(json, "rope_high_freq_factor", 4.0, where));
  rope.original_max_positions = 8192;
  return OkStatus();
}

}  // namespace

StatusOr<MetaParams> ParseMetaParams(std::string_view text, const std::string& where,
                                     const MetaOptions& options) {
  CRIA_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where));
  CRIA_RETURN_IF_ERROR(CheckKeys(json, where));
  MetaParams params;
  LlamaConfig& config = params.config;
  CRIA_ASSIGN_OR_RETURN(config.dim, Size(json, "dim", where));
  CRIA_ASSIGN_OR_RETURN(config.layers, Size(json, "n_layers", where));
  CRIA_ASSIGN_OR_RETURN(config.heads, Size(json, "n_heads", where));
  config.kv_heads = config.heads;
  if (json.contains("n_kv_heads") && !json["n_kv_heads"].is_null()) {
    CRIA_ASSIGN_OR_RETURN(config.kv_heads, Size(json, "n_kv_heads", where));
  }
  CRIA_ASSIGN_OR_RETURN(config.ffn, FfnSize(json, config.dim, where));
  CRIA_ASSIGN_OR_RETURN(config.norm_eps, JsonGetOr<double>(json, "norm_eps", 1e-5, where));
  CRIA_ASSIGN_OR_RETURN(config.vocab, JsonGetOr<int64_t>(json, "vocab_size", -1, where));
  params.vocab_is_known = config.vocab != -1;
  if (!params.vocab_is_known) config.vocab = 0;
  CRIA_RETURN_IF_ERROR(ReadRope(json, where, options, &config));
  CRIA_ASSIGN_OR_RETURN(config.max_positions,
                        JsonGetOr<int64_t>(json, "max_seq_len", config.max_positions, where));
  config.tied_head = false;
  return params;
}

}  // namespace cria::model
