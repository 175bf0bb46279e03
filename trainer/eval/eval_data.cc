#include "trainer/eval/eval_data.h"

#include <cstdlib>
#include <utility>

#include "base/file.h"
#include "trainer/config/train_config.h"
#include "trainer/data/data_tokenizer.h"
#include "trainer/loop/prepare_job.h"

namespace cria::trainer {
namespace {

// The configuration beside a run's checkpoints, from the run's folder or from a checkpoint's.
StatusOr<TrainConfig> RunConfig(const std::string& path) {
  for (const std::string& dir : {path, DirName(DirName(path))}) {
    const std::string file = JoinPath(dir, "config.yaml");
    if (Exists(file)) return LoadTrainConfig(file, {});
  }
  return NotFoundError(path, ": no config.yaml of the run");
}

Status CheckVocabulary(const std::string& where, int64_t num_tokens, const ModelFiles& model) {
  if (num_tokens <= model.config.vocab) return OkStatus();
  return InvalidArgumentError(where, ": a tokenizer of ", num_tokens, " tokens; the vocabulary of ",
                              model.path, " has ", model.config.vocab);
}

// Ids mean the same to the data and to the model.
Status CheckSameTokenizer(const std::string& dir, const Manifest& manifest,
                          const EvalDataOptions& options, const ModelFiles& model) {
  CRIA_RETURN_IF_ERROR(CheckVocabulary(dir, manifest.vocab_size, model));
  if (options.any_tokenizer || !model.tokenizer) return OkStatus();
  const std::string fingerprint = model.tokenizer->Fingerprint();
  if (fingerprint == manifest.tokenizer_fingerprint) return OkStatus();
  return InvalidArgumentError(dir, ": encoded with the tokenizer ", manifest.tokenizer_fingerprint,
                              " of ", manifest.vocab_size, " tokens; that of ", model.path, " is ",
                              fingerprint, " of ", model.tokenizer->vocab_size(),
                              " (--any-tokenizer goes on)");
}

StatusOr<EvalData> OpenFolder(const std::string& dir, const EvalDataOptions& options,
                              const ModelFiles& model) {
  EvalData data;
  Manifest manifest;
  CRIA_ASSIGN_OR_RETURN(data.text, OpenTokenFolder(dir, options.split, &manifest));
  CRIA_RETURN_IF_ERROR(CheckSameTokenizer(dir, manifest, options, model));
  CRIA_ASSIGN_OR_RETURN(data.tokenizer, LoadDataTokenizer(dir, manifest));
  return data;
}

StatusOr<EvalData> OpenShards(const EvalDataOptions& options, const ModelFiles& model) {
  EvalData data;
  std::optional<int32_t> start = model.bos_id;
  if (!options.tokenizer.empty() || model.tokenizer) {
    CRIA_ASSIGN_OR_RETURN(data.tokenizer, FindTokenizer(options.tokenizer, model));
    if (!start) start = data.tokenizer->bos_id();
  }
  CRIA_ASSIGN_OR_RETURN(data.text, OpenTokenShards(options.data, start));
  return data;
}

StatusOr<EvalData> OpenText(const EvalDataOptions& options, const ModelFiles& model) {
  EvalData data;
  CRIA_ASSIGN_OR_RETURN(data.tokenizer, FindTokenizer(options.tokenizer, model));
  TextOptions text;
  text.source.inputs = options.text;
  text.source.field = options.field;
  text.source.split_on = options.split_on;
  text.source.stop = options.stop;
  const char* temporary = std::getenv("TMPDIR");
  text.source.spool_dir = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  text.tokens_max = options.tokens_max;
  std::optional<int32_t> bos = model.bos_id ? model.bos_id : data.tokenizer->bos_id();
  if (options.no_bos) bos.reset();
  CRIA_ASSIGN_OR_RETURN(data.text,
                        EncodeDocuments(text, *data.tokenizer, bos, data.tokenizer->eos_id()));
  if (data.text->num_tokens() == 0) return InvalidArgumentError(data.text->name(), ": no text");
  return data;
}

// What the run itself was validated on.
StatusOr<EvalData> OpenRunData(const EvalDataOptions& options, const ModelFiles& model) {
  if (model.format != ModelFormat::kRun) {
    return InvalidArgumentError("what to evaluate on? --data PATH, --text FILE or --choices FILE (",
                                model.path, " is no run, which would have its own data)");
  }
  CRIA_ASSIGN_OR_RETURN(const TrainConfig config, RunConfig(model.path));
  CRIA_ASSIGN_OR_RETURN(const JobData job, PrepareJob(config, options.progress, options.stop));
  return OpenFolder(job.dir, options, model);
}

}  // namespace

StatusOr<Tokenizer> FindTokenizer(const std::string& path, const ModelFiles& model) {
  if (path.empty() && !model.tokenizer) {
    const std::string why =
        model.tokenizer_status.ok() ? "" : StrCat(" (", Message(model.tokenizer_status), ")");
    return InvalidArgumentError(model.path, ": the model has no tokenizer", why,
                                "; --tokenizer PATH names one");
  }
  StatusOr<Tokenizer> tokenizer =
      path.empty() ? *model.tokenizer
                   : Tokenizer::Load(IsDir(path) ? JoinPath(path, "tokenizer.json") : path);
  if (!tokenizer.ok()) return tokenizer.status();
  CRIA_RETURN_IF_ERROR(
      CheckVocabulary(path.empty() ? model.path : path, tokenizer->vocab_size(), model));
  return tokenizer;
}

std::optional<int64_t> TrainedSeq(const ModelFiles& model) {
  if (model.format != ModelFormat::kRun) return std::nullopt;
  const StatusOr<TrainConfig> config = RunConfig(model.path);
  if (!config.ok()) return std::nullopt;
  return config->train.seq;
}

StatusOr<EvalData> OpenEvalData(const EvalDataOptions& options, const ModelFiles& model) {
  if (!options.text.empty()) return OpenText(options, model);
  if (options.data.empty()) return OpenRunData(options, model);
  const std::string& first = options.data[0];
  if (!Exists(first)) return NotFoundError(first, ": no such file or folder");
  if (!IsDir(first)) return OpenShards(options, model);
  if (options.data.size() > 1) {
    return InvalidArgumentError("--data: one prepared folder at a time, got ", options.data.size());
  }
  return OpenFolder(first, options, model);
}

}  // namespace cria::trainer
