// An opened model as a folder of Hugging Face's. What `import` makes and `export hf` too: a model
// folder of Cria is one of Hugging Face's.
//
//   CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenModel("runs/default"));
//   CRIA_RETURN_IF_ERROR(WriteHfModel(files, "my-model", {}));
//
//   config.json              keys that transformers 4 and 5 read the same way
//   generation_config.json   bos and eos ids
//   model.safetensors        or shards and their index
//   tokenizer.json, tokenizer_config.json, special_tokens_map.json    where there is a tokenizer
//
// A folder of Hugging Face's that nothing is asked to change of is copied byte for byte, weights
// and files beside them. Thread-safe.

#ifndef CRIA_TRAINER_MODELS_HF_WRITER_H_
#define CRIA_TRAINER_MODELS_HF_WRITER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "model/io/safetensors.h"
#include "trainer/models/opened_model.h"

namespace cria::trainer {

struct HfWriterOptions {
  std::optional<model::StDtype> dtype = std::nullopt;  // F32, F16 or BF16; none: each weight's own
  std::optional<uint64_t> max_shard_bytes =
      std::nullopt;  // none: 5 GB, and a folder's own shards stay
  const std::atomic<bool>* stop = nullptr;
};

struct HfWriterResult {
  int num_files = 0;  // of weights
  int64_t bytes = 0;  // of those
};

// Writes the folder `out`: beside it under a temporary name, renamed at the end, so that `out` is
// complete or not there. InvalidArgument where `out` exists; errors of the weights
// (model/llama/load_weights.h: all are checked against the config first) and of the file system.
StatusOr<HfWriterResult> WriteHfModel(const ModelFiles& files, const std::string& out,
                                      const HfWriterOptions& options);

// The type that config.json names: the most used one among the matrices' elements.
model::StDtype MainDtype(const model::WeightSource& source);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_MODELS_HF_WRITER_H_
