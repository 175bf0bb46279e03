#include "trainer/loop/prepare_job.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "trainer/data/data_tokenizer.h"
#include "trainer/data/prepare.h"

namespace cria::trainer {
namespace {

std::string CacheDir() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return JoinPath(cache, "cria/data");
  const char* home = std::getenv("HOME");
  return JoinPath(home != nullptr ? home : "/tmp", ".cache/cria/data");
}

// Equal names in two folders are two corpora.
std::string AbsolutePath(const std::string& input) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(input, error);
  return error || input == "-" ? input : path.lexically_normal().string();
}

// A folder for each choice of inputs and tokenizer. PrepareData checks that what is there matches.
std::string DirFor(const DataConfig& data, const Tokenizer* tokenizer) {
  const std::string vocab =
      tokenizer == nullptr ? StrCat(data.vocab) : tokenizer->Fingerprint().substr(0, 12);
  if (data.inputs.empty()) {
    return JoinPath(CacheDir(), StrCat("kjv-", vocab, "-", data.val_fraction));
  }
  std::string all;
  for (const std::string& input : data.inputs) all += StrCat(AbsolutePath(input), "\n");
  all += StrCat(data.field, "\n", data.val_fraction);
  return JoinPath(CacheDir(), StrCat(HashHex(all).substr(0, 12), "-", vocab));
}

// A file with the tokenizer, whose name is its content.
StatusOr<std::string> SaveToCache(const Tokenizer& tokenizer) {
  const std::string dir = JoinPath(CacheDir(), "tokenizers");
  CRIA_RETURN_IF_ERROR(MakeDirs(dir));
  const std::string path = JoinPath(dir, tokenizer.Fingerprint() + ".json");
  CRIA_RETURN_IF_ERROR(tokenizer.Save(path));
  return path;
}

Status CheckTokenizer(const std::string& dir, const Manifest& manifest,
                      const Tokenizer& tokenizer) {
  const std::string fingerprint = tokenizer.Fingerprint();
  if (manifest.tokenizer_fingerprint == fingerprint) return OkStatus();
  return InvalidArgumentError("data.path: ", dir,
                              " was encoded with another tokenizer (fingerprint ",
                              manifest.tokenizer_fingerprint, ", ", manifest.vocab_size,
                              " tokens) than that of the model to start from (", fingerprint, ", ",
                              tokenizer.vocab_size(), " tokens)");
}

}  // namespace

StatusOr<JobData> PrepareJob(const TrainConfig& config, std::FILE* progress,
                             const std::atomic<bool>* stop, const Tokenizer* tokenizer) {
  if (config.data.path.empty()) {
    PrepareOptions options;
    options.source.inputs = config.data.inputs;
    options.source.field = config.data.field;
    options.out_dir = DirFor(config.data, tokenizer);
    options.vocab_size = config.data.vocab;
    if (tokenizer != nullptr) {
      CRIA_ASSIGN_OR_RETURN(options.tokenizer_path, SaveToCache(*tokenizer));
    }
    options.val_fraction = config.data.val_fraction;
    options.progress = progress;
    options.stop = stop;
    Status prepared = PrepareData(options).status();
    if (prepared.code() == StatusCode::kAlreadyExists) {
      // The inputs have changed since. The cache is ours to replace; a run that was trained on the
      // old text notices (resume_checks.h).
      LogInfo("the inputs have changed: preparing them again");
      options.force = true;
      prepared = PrepareData(options).status();
    }
    CRIA_RETURN_IF_ERROR(Annotate(prepared, "prepare the data"));
  }
  return OpenJob(config, tokenizer);
}

StatusOr<JobData> OpenJob(const TrainConfig& config, const Tokenizer* tokenizer) {
  const std::string dir =
      config.data.path.empty() ? DirFor(config.data, tokenizer) : config.data.path;
  CRIA_ASSIGN_OR_RETURN(TokenDataset train, TokenDataset::Open(dir, "train"));
  if (tokenizer != nullptr) {
    CRIA_RETURN_IF_ERROR(CheckTokenizer(dir, train.manifest(), *tokenizer));
  }
  CRIA_ASSIGN_OR_RETURN(TokenDataset val, TokenDataset::Open(dir, "val"));
  CRIA_ASSIGN_OR_RETURN(Tokenizer of_data, LoadDataTokenizer(dir, train.manifest()));
  return JobData{dir, std::move(of_data), std::move(train), std::move(val)};
}

}  // namespace cria::trainer
