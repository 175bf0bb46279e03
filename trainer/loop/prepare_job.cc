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

// A folder for each choice of inputs and sizes. PrepareData checks that what is there matches.
std::string DirFor(const DataConfig& data) {
  if (data.inputs.empty()) {
    return JoinPath(CacheDir(), StrCat("kjv-", data.vocab, "-", data.val_fraction));
  }
  std::string all;
  for (const std::string& input : data.inputs) all += StrCat(AbsolutePath(input), "\n");
  all += StrCat(data.field, "\n", data.val_fraction);
  return JoinPath(CacheDir(), StrCat(HashHex(all).substr(0, 12), "-", data.vocab));
}

}  // namespace

StatusOr<JobData> PrepareJob(const TrainConfig& config, std::FILE* progress,
                             const std::atomic<bool>* stop) {
  std::string dir = config.data.path;
  if (dir.empty()) {
    dir = DirFor(config.data);
    PrepareOptions options;
    options.source.inputs = config.data.inputs;
    options.source.field = config.data.field;
    options.out_dir = dir;
    options.vocab_size = config.data.vocab;
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
  CRIA_ASSIGN_OR_RETURN(TokenDataset train, TokenDataset::Open(dir, "train"));
  CRIA_ASSIGN_OR_RETURN(TokenDataset val, TokenDataset::Open(dir, "val"));
  CRIA_ASSIGN_OR_RETURN(Tokenizer tokenizer, LoadDataTokenizer(dir, train.manifest()));
  return JobData{dir, std::move(tokenizer), std::move(train), std::move(val)};
}

}  // namespace cria::trainer
