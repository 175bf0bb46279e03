#include "tests/unit/trainer/generate/markov_folder.h"

#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "model/io/safetensors.h"
#include "tests/support/process.h"
#include "tests/unit/trainer/generate/byte_tokenizer.h"
#include "tests/unit/trainer/generate/markov_model.h"

namespace cria::trainer {

std::string WriteMarkovFolder(const std::string& name,
                              const std::function<float(int32_t from, int32_t to)>& logit,
                              const MarkovFolderOptions& options) {
  const std::string dir = FreshDir(name);
  const MarkovModel model(logit);
  const model::LlamaConfig& config = model.config();
  const MemoryWeights weights = model.Weights();
  std::vector<model::TensorToWrite> tensors;
  for (const model::WeightInfo& w : weights.weights()) {
    const std::vector<float>& values = weights.values(w);
    tensors.push_back({w.name, w.dtype, w.shape,
                       std::string_view(reinterpret_cast<const char*>(values.data()),
                                        values.size() * sizeof(float))});
  }
  CRIA_CHECK(WriteSafetensors(JoinPath(dir, "model.safetensors"), tensors, {}).ok());
  const Json json = {{"architectures", {"LlamaForCausalLM"}},
                     {"model_type", "llama"},
                     {"hidden_size", config.dim},
                     {"intermediate_size", config.ffn},
                     {"num_hidden_layers", config.layers},
                     {"num_attention_heads", config.heads},
                     {"num_key_value_heads", config.kv_heads},
                     {"head_dim", config.head_dim},
                     {"vocab_size", config.vocab},
                     {"max_position_embeddings", options.max_positions},
                     {"rms_norm_eps", config.norm_eps},
                     {"rope_theta", config.rope_theta},
                     {"tie_word_embeddings", false},
                     {"bos_token_id", kByteBos},
                     {"eos_token_id", kByteEos}};
  CRIA_CHECK(WriteJsonFile(JoinPath(dir, "config.json"), json).ok());
  if (!options.has_tokenizer) return dir;
  CRIA_CHECK(ByteTokenizer().Save(JoinPath(dir, "tokenizer.json")).ok());
  Json tokenizer_config = {{"bos_token", kBeginOfText}, {"eos_token", kEndOfText}};
  if (!options.chat_template.empty()) tokenizer_config["chat_template"] = options.chat_template;
  CRIA_CHECK(WriteJsonFile(JoinPath(dir, "tokenizer_config.json"), tokenizer_config).ok());
  return dir;
}

}  // namespace cria::trainer
