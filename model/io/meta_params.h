// params.json, Meta's description of a Llama beside its checkpoint.
//
//   MetaOptions options;
//   CRIA_ASSIGN_OR_RETURN(const MetaParams params,
//                         ParseMetaParams(text, "Llama3.2-1B/params.json", options));
//   params.config.rope_scaling.factor
//
//   {"dim": 2048, "ffn_dim_multiplier": 1.5, "multiple_of": 256, "n_heads": 32, "n_kv_heads": 8,
//    "n_layers": 16, "norm_eps": 1e-05, "rope_theta": 500000.0, "use_scaled_rope": true,
//    "vocab_size": 128256}
//
// What the file leaves open: the vocabulary's size where it is -1 (the embedding has it), whether
// the head is tied (the weights say), the longest context (131,072 with scaled RoPE, 8,192 with
// Llama 3's theta, else 4,096) and the factor of scaled RoPE, which is 8, but 32 for Llama 3.2 1B
// and 3B, told here by their sizes. A key that we don't know is an error: it may change the model.
// Thread-safe. Source: llama-models, models/llama3/args.py and model.py (FeedForward).

#ifndef CRIA_MODEL_IO_META_PARAMS_H_
#define CRIA_MODEL_IO_META_PARAMS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/llama/config.h"

namespace cria::model {

struct MetaOptions {
  std::optional<double> rope_factor =
      std::nullopt;  // of scaled RoPE, over what is told by the sizes
};

struct MetaParams {
  LlamaConfig config;          // tied_head false; vocab as below
  bool vocab_is_known = true;  // false: -1 or absent, config.vocab is 0
};

// InvalidArgument naming `where`, the key and its value. The config is not complete before vocab
// is: Validate it then.
StatusOr<MetaParams> ParseMetaParams(std::string_view text, const std::string& where,
                                     const MetaOptions& options);

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_META_PARAMS_H_
