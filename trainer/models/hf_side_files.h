// The files beside the weights of a Hugging Face folder, made for a model of another format or
// changed to another dtype. Private to this folder.
//
//   CRIA_ASSIGN_OR_RETURN(const auto side, MakeHfSideFiles(files, model::StDtype::kBF16));
//   side.at("config.json")
//
// config.json has the keys of transformers 4 (rope_theta, rope_scaling, torch_dtype), which 5 reads
// as well; 4 does not read those of 5. Thread-safe.

#ifndef CRIA_TRAINER_MODELS_HF_SIDE_FILES_H_
#define CRIA_TRAINER_MODELS_HF_SIDE_FILES_H_

#include <map>
#include <string>

#include "base/status.h"
#include "model/io/safetensors.h"
#include "trainer/models/opened_model.h"

namespace cria::trainer {

// config.json, generation_config.json and, where the model has a tokenizer, tokenizer.json,
// tokenizer_config.json (with the chat template) and special_tokens_map.json. By name.
// Unimplemented: weights of a type that PyTorch has no name for.
StatusOr<std::map<std::string, std::string>> MakeHfSideFiles(const ModelFiles& files,
                                                             model::StDtype dtype);

// A config.json with its dtype (and torch_dtype, where it has that) replaced; other keys and their
// order stay.
StatusOr<std::string> WithDtype(const std::string& config_json, model::StDtype dtype,
                                const std::string& where);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_MODELS_HF_SIDE_FILES_H_
