#include "trainer/models/meta_model.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "model/io/meta_source.h"
#include "trainer/tokenizer/tiktoken.h"

namespace cria::trainer {
namespace {

constexpr char kParams[] = "params.json";
constexpr char kTokenizerModel[] = "tokenizer.model";
constexpr uint64_t kMaxParamsBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;

// vocab_size may be left to the tokenizer and the embedding; where it is not, they must agree.
Status CompleteVocab(const model::MetaSource& source, const std::string& where,
                     model::MetaParams* params) {
  const model::WeightInfo* embedding = source.Find("model.embed_tokens.weight");
  if (embedding == nullptr) {
    return InvalidArgumentError(source.path(), ": no tok_embeddings.weight");
  }
  if (!params->vocab_is_known) params->config.vocab = embedding->rows();
  if (params->config.vocab == embedding->rows()) return OkStatus();
  return InvalidArgumentError(where, ": vocab_size: ", params->config.vocab,
                              "; tok_embeddings.weight has ", embedding->rows(), " rows");
}

Status ReadTokenizer(ModelFiles* files) {
  const std::string path = JoinPath(files->path, kTokenizerModel);
  if (!Exists(path)) {
    files->tokenizer_status = NotFoundError(files->path, ": no ", kTokenizerModel);
    return OkStatus();
  }
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTokenizerBytes));
  const bool scaled = files->config.rope_scaling.type == "llama3";
  TiktokenOptions options;
  options.specials = scaled ? TiktokenSpecials::kLlama31HuggingFace : TiktokenSpecials::kLlama30;
  const auto lines = std::count(text.begin(), text.end(), '\n');
  const auto num_specials = static_cast<int64_t>(TiktokenSpecialNames(options.specials).size());
  if (files->config.vocab < lines + num_specials) {
    options.specials = TiktokenSpecials::kNone;
    options.begin_of_text = false;
  }
  StatusOr<Tokenizer> tokenizer = TiktokenFromText(text, options, path);
  if (tokenizer.status().code() == StatusCode::kUnimplemented) {
    files->tokenizer_status = tokenizer.status();
    return OkStatus();
  }
  CRIA_RETURN_IF_ERROR(tokenizer.status());
  if (tokenizer->vocab_size() > files->config.vocab) {
    return InvalidArgumentError(path, ": ", tokenizer->vocab_size(), " tokens; the model has ",
                                files->config.vocab);
  }
  files->tokenizer = std::move(*tokenizer);
  return OkStatus();
}

}  // namespace

bool LooksLikeMetaModel(const std::string& path) {
  return IsDir(path) && Exists(JoinPath(path, kParams));
}

StatusOr<ModelFiles> OpenMetaModel(const std::string& dir, const model::MetaOptions& options) {
  ModelFiles files;
  files.path = dir;
  files.format = ModelFormat::kMeta;
  const std::string where = JoinPath(dir, kParams);
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(where, kMaxParamsBytes));
  CRIA_ASSIGN_OR_RETURN(model::MetaParams params, model::ParseMetaParams(text, where, options));
  CRIA_ASSIGN_OR_RETURN(auto source, model::MetaSource::Open(dir, params.config));
  CRIA_RETURN_IF_ERROR(CompleteVocab(*source, where, &params));
  params.config.tied_head = source->head_is_tied();
  CRIA_RETURN_IF_ERROR(model::Validate(params.config, where));
  files.config = params.config;
  if (files.config.rope_scaling.type == "llama3") {
    LogInfo(where, ": RoPE is stretched by ", files.config.rope_scaling.factor);
  }
  files.weights = std::move(source);
  CRIA_RETURN_IF_ERROR(ReadTokenizer(&files));
  FillSpecialIds(&files);
  return files;
}

}  // namespace cria::trainer
