#include "trainer/models/run_model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "model/io/sharded_safetensors.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/train_config.h"

namespace cria::trainer {
namespace {

bool IsCheckpoint(const std::string& path) {
  return Exists(JoinPath(path, "manifest.json")) && Exists(JoinPath(path, model::kSafetensorsFile));
}

StatusOr<std::string> FindCheckpoint(const std::string& path) {
  if (IsCheckpoint(path)) return path;
  std::vector<std::string> rejected;
  StatusOr<std::string> newest = FindNewestVerified(JoinPath(path, "checkpoints"), &rejected);
  for (const std::string& reason : rejected) LogWarning("passed over ", reason);
  return newest;
}

// The tokenizer lies in the run's folder: beside checkpoints/, two levels above a checkpoint.
Status ReadTokenizer(const std::string& checkpoint, ModelFiles* files) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(checkpoint, error).string();
  const std::string run = DirName(DirName(error ? checkpoint : absolute));
  const std::string path = JoinPath(run, "tokenizer.json");
  if (!Exists(path)) {
    files->tokenizer_status = NotFoundError(files->path, ": no ", path);
    return OkStatus();
  }
  CRIA_ASSIGN_OR_RETURN(files->tokenizer, Tokenizer::Load(path));
  return OkStatus();
}

}  // namespace

bool LooksLikeRun(const std::string& path) {
  return IsDir(JoinPath(path, "checkpoints")) || IsCheckpoint(path);
}

StatusOr<ModelFiles> OpenRunModel(const std::string& path) {
  ModelFiles files;
  files.path = path;
  files.format = ModelFormat::kRun;
  CRIA_ASSIGN_OR_RETURN(const std::string dir, FindCheckpoint(path));
  CRIA_ASSIGN_OR_RETURN(LoadedCheckpoint loaded, LoadCheckpoint(dir));
  const auto checkpoint = std::make_shared<const LoadedCheckpoint>(std::move(loaded));
  CRIA_ASSIGN_OR_RETURN(const TrainConfig config, ParseTrainConfig(checkpoint->state().config_yaml,
                                                                   StrCat(dir, ": its config")));
  files.config = config.model;
  // The file lives as long as the checkpoint that verified it.
  const std::shared_ptr<const model::SafetensorsFile> weights(
      checkpoint, &checkpoint->file(CheckpointPart::kModel));
  CRIA_ASSIGN_OR_RETURN(files.weights, model::SafetensorsSource::FromFiles({weights}, dir));
  CRIA_RETURN_IF_ERROR(ReadTokenizer(dir, &files));
  FillSpecialIds(&files);
  return files;
}

}  // namespace cria::trainer
