#include "trainer/models/run_model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "model/io/sharded_safetensors.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/config/train_config.h"

namespace cria::trainer {
namespace {

constexpr char kGenerationFile[] = "generation.json";

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

// The run's folder holds checkpoints/, two levels above a checkpoint.
std::string RunOf(const std::string& checkpoint) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(checkpoint, error).string();
  return DirName(DirName(error ? checkpoint : absolute));
}

Status ReadGenerationSettings(const std::string& run, ModelFiles* files) {
  const std::string path = JoinPath(run, kGenerationFile);
  if (!Exists(path)) return OkStatus();
  CRIA_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  if (json.contains("bos_id")) {
    CRIA_ASSIGN_OR_RETURN(files->bos_id, JsonGet<int32_t>(json, "bos_id", path));
  }
  CRIA_ASSIGN_OR_RETURN(files->eos_ids, JsonGet<std::vector<int32_t>>(json, "eos_ids", path));
  CRIA_ASSIGN_OR_RETURN(files->chat_template, JsonGet<std::string>(json, "chat_template", path));
  return OkStatus();
}

Status ReadTokenizer(const std::string& run, ModelFiles* files) {
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
  const std::string run = RunOf(dir);
  CRIA_RETURN_IF_ERROR(ReadGenerationSettings(run, &files));
  CRIA_RETURN_IF_ERROR(ReadTokenizer(run, &files));
  FillSpecialIds(&files);
  return files;
}

Status SaveGenerationSettings(const ModelFiles& from, const std::string& run_dir) {
  Json json = Json::object();
  if (from.bos_id) json["bos_id"] = *from.bos_id;
  json["eos_ids"] = from.eos_ids;
  json["chat_template"] = from.chat_template;
  return WriteJsonFile(JoinPath(run_dir, kGenerationFile), json);
}

}  // namespace cria::trainer
