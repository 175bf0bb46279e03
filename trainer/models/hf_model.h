// Models in Hugging Face's layout: a folder with config.json, safetensors and a tokenizer.
//
//   CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenHfModel("Llama-3.2-1B"));
//
// Thread-safe.

#ifndef CRIA_TRAINER_MODELS_HF_MODEL_H_
#define CRIA_TRAINER_MODELS_HF_MODEL_H_

#include <string>

#include "base/status.h"
#include "trainer/models/opened_model.h"

namespace cria::trainer {

// A folder with a config.json.
bool LooksLikeHfModel(const std::string& path);

// Reads the description and maps the weights. Errors as model/llama/config.h for config.json,
// model/io/sharded_safetensors.h for the weights, Tokenizer::Load for a damaged tokenizer; one of
// an unknown kind leaves `tokenizer` empty. Ids that end a generation: generation_config.json, else
// config.json, else the tokenizer.
StatusOr<ModelFiles> OpenHfModel(const std::string& dir);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_MODELS_HF_MODEL_H_
