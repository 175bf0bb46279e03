// ModelFiles: a model from any format that we read, opened: sizes, weights, tokenizer.
//
// Made by OpenModel (model_files.h) and by each format's reader in this folder.
//
// Weights are mapped, not read: opening costs headers and the tokenizer. The source's description
// is complete before a weight is touched. Thread-compatible.

#ifndef CRIA_TRAINER_MODELS_OPENED_MODEL_H_
#define CRIA_TRAINER_MODELS_OPENED_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/io/weight_source.h"
#include "model/llama/config.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

enum class ModelFormat { kHf, kGguf, kMeta, kRun };

// "hf", "gguf", "meta", "run".
const char* ModelFormatName(ModelFormat format);

struct ModelFiles {
  std::string path;
  ModelFormat format = ModelFormat::kHf;
  model::LlamaConfig config;
  std::unique_ptr<model::WeightSource> weights;

  // None where the files have none, or one of a kind that we can't run (SentencePiece): then
  // tokenizer_status says why, for whoever needs it.
  std::optional<Tokenizer> tokenizer;
  Status tokenizer_status;

  std::optional<int32_t> bos_id;
  std::vector<int32_t> eos_ids;  // each ends a generation
  std::string chat_template;     // Jinja text; empty where the model has none

  // Hugging Face's files beside the weights, as they were found: config.json,
  // generation_config.json, tokenizer.json, tokenizer_config.json, special_tokens_map.json. By
  // name; only kHf has any.
  std::map<std::string, std::string> hf_files;
};

// Fills bos_id and eos_ids, where they are empty, from the tokenizer's <|begin_of_text|>,
// <|end_of_text|>, <|eom_id|> and <|eot_id|>.
void FillSpecialIds(ModelFiles* files);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_MODELS_OPENED_MODEL_H_
