#include "trainer/models/hf_model.h"

#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "model/io/sharded_safetensors.h"

namespace cria::trainer {
namespace {

constexpr char kConfig[] = "config.json";
constexpr char kGenerationConfig[] = "generation_config.json";
constexpr char kTokenizer[] = "tokenizer.json";
constexpr char kTokenizerConfig[] = "tokenizer_config.json";
constexpr char kChatTemplate[] = "chat_template.jinja";

// The files beside the weights that a model is used with; the first is required.
constexpr const char* kSideFiles[] = {
    kConfig,           kGenerationConfig,         kTokenizer,    kTokenizerConfig,
    "tokenizer.model", "special_tokens_map.json", kChatTemplate, "added_tokens.json",
};
constexpr uint64_t kMaxSideFileBytes = uint64_t{256} << 20;

Status ReadSideFiles(const std::string& dir, std::map<std::string, std::string>* files) {
  for (const char* name : kSideFiles) {
    StatusOr<std::string> text = ReadFile(JoinPath(dir, name), kMaxSideFileBytes);
    if (text.ok()) {
      (*files)[name] = std::move(*text);
    } else if (text.status().code() != StatusCode::kNotFound || name == kConfig) {
      return text.status();
    }
  }
  return OkStatus();
}

// One id, a list of them, or null.
StatusOr<std::vector<int32_t>> ReadIds(const Json& json, const std::string& key,
                                       const std::string& where) {
  if (!json.is_object() || !json.contains(key) || json[key].is_null()) {
    return std::vector<int32_t>();
  }
  if (json[key].is_array()) return JsonGet<std::vector<int32_t>>(json, key, where);
  CRIA_ASSIGN_OR_RETURN(const auto id, JsonGet<int32_t>(json, key, where));
  return std::vector<int32_t>{id};
}

Status ReadSpecialIds(ModelFiles* files) {
  for (const char* name : {kGenerationConfig, kConfig}) {
    const auto found = files->hf_files.find(name);
    if (found == files->hf_files.end()) continue;
    const std::string where = JoinPath(files->path, name);
    CRIA_ASSIGN_OR_RETURN(const Json json, ParseJson(found->second, where));
    CRIA_ASSIGN_OR_RETURN(const std::vector<int32_t> bos, ReadIds(json, "bos_token_id", where));
    if (!files->bos_id && !bos.empty()) files->bos_id = bos[0];
    CRIA_ASSIGN_OR_RETURN(std::vector<int32_t> eos, ReadIds(json, "eos_token_id", where));
    if (files->eos_ids.empty()) files->eos_ids = std::move(eos);
  }
  FillSpecialIds(files);
  return OkStatus();
}

Status ReadTokenizer(ModelFiles* files) {
  const auto found = files->hf_files.find(kTokenizer);
  if (found == files->hf_files.end()) {
    files->tokenizer_status = NotFoundError(files->path, ": no ", kTokenizer);
    return OkStatus();
  }
  StatusOr<Tokenizer> tokenizer =
      Tokenizer::FromJson(found->second, JoinPath(files->path, kTokenizer));
  if (tokenizer.ok()) {
    files->tokenizer = std::move(*tokenizer);
    if (files->tokenizer->vocab_size() > files->config.vocab) {
      return InvalidArgumentError(files->path, ": ", kTokenizer, " has ids up to ",
                                  files->tokenizer->vocab_size() - 1, "; vocab_size of ", kConfig,
                                  " is ", files->config.vocab);
    }
    return OkStatus();
  }
  // Its weights are good without it.
  if (tokenizer.status().code() != StatusCode::kUnimplemented) return tokenizer.status();
  files->tokenizer_status = tokenizer.status();
  return OkStatus();
}

// chat_template of tokenizer_config.json is a text, or a list of named ones; newer versions of
// transformers write it to a file of its own.
Status ReadChatTemplate(ModelFiles* files) {
  const auto own = files->hf_files.find(kChatTemplate);
  if (own != files->hf_files.end()) {
    files->chat_template = own->second;
    return OkStatus();
  }
  const auto found = files->hf_files.find(kTokenizerConfig);
  if (found == files->hf_files.end()) return OkStatus();
  const std::string where = JoinPath(files->path, kTokenizerConfig);
  CRIA_ASSIGN_OR_RETURN(const Json json, ParseJson(found->second, where));
  if (!json.is_object() || !json.contains("chat_template")) return OkStatus();
  const Json& value = json["chat_template"];
  if (!value.is_array()) {
    CRIA_ASSIGN_OR_RETURN(files->chat_template,
                          JsonGetOr<std::string>(json, "chat_template", "", where));
    return OkStatus();
  }
  for (const Json& entry : value) {
    CRIA_ASSIGN_OR_RETURN(const auto name, JsonGet<std::string>(entry, "name", where));
    if (name != "default") continue;
    CRIA_ASSIGN_OR_RETURN(files->chat_template, JsonGet<std::string>(entry, "template", where));
  }
  return OkStatus();
}

}  // namespace

bool LooksLikeHfModel(const std::string& path) {
  return IsDir(path) && Exists(JoinPath(path, kConfig));
}

StatusOr<ModelFiles> OpenHfModel(const std::string& dir) {
  ModelFiles files;
  files.path = dir;
  files.format = ModelFormat::kHf;
  CRIA_RETURN_IF_ERROR(ReadSideFiles(dir, &files.hf_files));
  CRIA_ASSIGN_OR_RETURN(files.config, model::ParseHuggingFaceConfig(files.hf_files.at(kConfig),
                                                                    JoinPath(dir, kConfig)));
  CRIA_ASSIGN_OR_RETURN(files.weights, model::SafetensorsSource::Open(dir));
  CRIA_RETURN_IF_ERROR(ReadTokenizer(&files));
  CRIA_RETURN_IF_ERROR(ReadSpecialIds(&files));
  CRIA_RETURN_IF_ERROR(ReadChatTemplate(&files));
  return files;
}

}  // namespace cria::trainer
