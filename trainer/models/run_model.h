// Models that `cria train` made: a run's folder, or one checkpoint of it.
//
//   CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenRunModel("runs/default"));
//
// Thread-safe.

#ifndef CRIA_TRAINER_MODELS_RUN_MODEL_H_
#define CRIA_TRAINER_MODELS_RUN_MODEL_H_

#include <string>

#include "base/status.h"
#include "trainer/models/opened_model.h"

namespace cria::trainer {

// A folder with checkpoints/, or a checkpoint's folder (one with manifest.json and
// model.safetensors).
bool LooksLikeRun(const std::string& path);

// Of a run, the newest checkpoint that verifies; damaged newer ones are passed over with a warning.
// The config is the checkpoint's own. NotFound when there is no checkpoint yet; else as
// LoadCheckpoint. Cost: the checkpoint is read and hashed once.
StatusOr<ModelFiles> OpenRunModel(const std::string& path);

// Writes what a run takes over from the model that it starts from, besides weights and tokenizer:
// bos and eos ids and the chat template, in RUN/generation.json. OpenRunModel reads it.
Status SaveGenerationSettings(const ModelFiles& from, const std::string& run_dir);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_MODELS_RUN_MODEL_H_
