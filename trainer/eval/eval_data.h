// The text that `cria eval` measures a model's loss on, from what the user named.
//
//   CRIA_ASSIGN_OR_RETURN(const EvalData data, OpenEvalData({.data = {"data/kjv"}}, model_files));
//   EvalWindows windows(data.text.get(), {.seq = ..., ...});
//
// Called by eval_main.cc. Thread-compatible.

#ifndef CRIA_TRAINER_EVAL_EVAL_DATA_H_
#define CRIA_TRAINER_EVAL_EVAL_DATA_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "trainer/eval/token_text.h"
#include "trainer/models/model_files.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

struct EvalDataOptions {
  // A prepared folder, or llm.c's shards. Neither data nor text: the data that a run was trained
  // on, prepared again where it is not there.
  std::vector<std::string> data = {};
  std::string split = "val";
  std::vector<std::string> text = {};  // files and folders for a DocumentSource
  std::string field = "text";
  std::string split_on = {};
  std::string tokenizer = {};  // a tokenizer.json, or a folder with one, instead of the model's
  bool any_tokenizer = false;  // the data's may differ from the model's
  bool no_bos = false;         // texts don't begin with begin-of-text
  int64_t tokens_max = INT64_MAX;
  std::FILE* progress = nullptr;
  const std::atomic<bool>* stop = nullptr;
};

struct EvalData {
  std::unique_ptr<TokenText> text;
  std::optional<Tokenizer> tokenizer;  // whose tokens these are; none is known of llm.c's
};

// NotFound: no such data. InvalidArgument: a vocabulary larger than the model's, or another
// tokenizer than the model's, each with both numbers; text without a tokenizer. Else the errors of
// the sources.
StatusOr<EvalData> OpenEvalData(const EvalDataOptions& options, const ModelFiles& model);

// The tokenizer at `path`, else the model's. InvalidArgument, saying how to name one, without any,
// and for one with more tokens than the model's vocabulary.
StatusOr<Tokenizer> FindTokenizer(const std::string& path, const ModelFiles& model);

// How many tokens of a sequence the model was trained on, where that is known (a run).
std::optional<int64_t> TrainedSeq(const ModelFiles& model);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_EVAL_EVAL_DATA_H_
