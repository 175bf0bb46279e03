// Hugging Face's config.json (model/llama/config.h).

#include "base/check.h"
#include "model/llama/config.h"
#include "tests/fuzz/fuzz_target.h"

namespace cria::fuzz {
namespace {

Status Read(std::string_view input) {
  const std::string path = ScratchFile("config.json", input);
  const StatusOr<model::LlamaConfig> config = model::LlamaConfigFromHuggingFace(path);
  if (!config.ok()) return NamesPlace(config.status(), path);
  const Status valid = Validate(*config, path);
  if (!valid.ok()) return NamesPlace(valid, path);
  // What follows from the sizes must not overflow.
  CRIA_CHECK(config->QDim() > 0 && config->KvDim() > 0 && config->HeadDim() % 2 == 0);
  CRIA_CHECK(config->heads % config->kv_heads == 0);
  int64_t matrix = 0;
  CRIA_CHECK(!__builtin_mul_overflow(config->QDim(), config->dim, &matrix));
  CRIA_CHECK(!__builtin_mul_overflow(config->ffn, 4 * config->dim, &matrix));
  CRIA_CHECK(!__builtin_mul_overflow(config->vocab, 4 * config->dim, &matrix));
  return OkStatus();
}

std::vector<std::string> Seeds() {
  return {
      // transformers 5
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 48,
"intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
"num_key_value_heads": 2, "head_dim": 8, "vocab_size": 128, "rms_norm_eps": 1e-05,
"max_position_embeddings": 2048, "tie_word_embeddings": false, "attention_bias": false,
"mlp_bias": false, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": [2, 3],
"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
"high_freq_factor": 4.0, "original_max_position_embeddings": 256, "rope_theta": 500000.0}})",
      // transformers 4
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
"intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 259,
"rms_norm_eps": 1e-06, "max_position_embeddings": 4096, "rope_theta": 10000.0,
"rope_scaling": {"type": "linear", "factor": 2.0}, "torch_dtype": "bfloat16"})",
  };
}

}  // namespace

const Target& TheTarget() {
  static const Target target = {.name = "config_json", .read = Read, .seeds = Seeds};
  return target;
}

}  // namespace cria::fuzz
