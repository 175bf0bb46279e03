// ModelFiles: a model from any format that we read, opened: sizes, weights, tokenizer.
//
// Called by generate, eval, export, import and `train --init`.
//
//   CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenModel("Llama-3.2-1B"));
//   files.config, *files.weights, files.tokenizer
//
// What a path may be:
//   hf    a folder with config.json and model.safetensors, or its shards and index
//   gguf  a file of llama.cpp's format
//   meta  a folder with params.json, consolidated.NN.pth and tokenizer.model
//   run   a folder of `cria train` (its newest checkpoint that verifies), or one of its checkpoints
//
// Weights are mapped, not read: opening costs headers and the tokenizer. The source's description
// is complete before a weight is touched, and every file may be hostile: one clear error that names
// it. Thread-compatible.

#ifndef CRIA_TRAINER_MODELS_MODEL_FILES_H_
#define CRIA_TRAINER_MODELS_MODEL_FILES_H_

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

const char* ModelFormatName(ModelFormat format);

struct ModelFiles {
  std::string path;
  ModelFormat format = ModelFormat::kHf;
  model::LlamaConfig config;
  std::unique_ptr<model::WeightSource> weights;
  std::optional<Tokenizer> tokenizer;  // none where the files have none

  std::optional<int32_t> bos_id;
  std::vector<int32_t> eos_ids;  // each ends a generation
  std::string chat_template;     // Jinja text; empty where the model has none

  // Hugging Face's files beside the weights, as they were found: config.json,
  // generation_config.json, tokenizer.json, tokenizer_config.json, special_tokens_map.json. By
  // name; only kHf has any.
  std::map<std::string, std::string> hf_files;
};

// NotFound: no such path, or nothing in it that looks like a model (the message says what was
// looked for). Otherwise the format's errors.
StatusOr<ModelFiles> OpenModel(const std::string& path);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_MODELS_MODEL_FILES_H_
