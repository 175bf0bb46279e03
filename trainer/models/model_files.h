// OpenModel: a model from any format that we read.
//
// Called by generate, eval, export, import and `train --init`.
//
//   CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenModel("Llama-3.2-1B"));
//   files.config, *files.weights, files.tokenizer        // trainer/models/opened_model.h
//
// What a path may be:
//   hf    a folder with config.json and model.safetensors, or its shards and index
//   gguf  a file of llama.cpp's format
//   meta  a folder with params.json, consolidated.NN.pth and tokenizer.model
//   run   a folder of `cria train` (its newest checkpoint that verifies), or one of its checkpoints
//
// Every file may be hostile: one clear error that names it. Thread-safe.

#ifndef CRIA_TRAINER_MODELS_MODEL_FILES_H_
#define CRIA_TRAINER_MODELS_MODEL_FILES_H_

#include <string>

#include "base/status.h"
#include "trainer/models/opened_model.h"

namespace cria::trainer {

// NotFound: no such path, or nothing in it that looks like a model (the message says what was
// looked for). Otherwise the format's errors.
StatusOr<ModelFiles> OpenModel(const std::string& path);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_MODELS_MODEL_FILES_H_
