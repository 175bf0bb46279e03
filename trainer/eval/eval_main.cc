// `cria eval`: a model's loss on data or text, or its accuracy on multiple-choice questions.
//
// Exit: 0 done; 1 something went wrong; 2 usage; 130 interrupted.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/stop_signals.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/decoder.h"
#include "model/llama/llama.h"
#include "model/llama/load_weights.h"
#include "trainer/eval/choice_accuracy.h"
#include "trainer/eval/choice_scorer.h"
#include "trainer/eval/choice_tokens.h"
#include "trainer/eval/choices_file.h"
#include "trainer/eval/eval_data.h"
#include "trainer/eval/eval_windows.h"
#include "trainer/eval/loss_eval.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

constexpr int64_t kSeqDefault = 1024;                // or the model's positions
constexpr int64_t kRowsMax = 512;                    // tokens of one pass over questions
constexpr int64_t kLogitsBytes = int64_t{64} << 20;  // of one pass, at most
constexpr int64_t kCacheBytes = int64_t{1} << 30;    // of keys and values, unless --batch says more

std::atomic<bool> stop_requested{false};  // by the first signal; the second ends at once

struct Flags {
  std::string model;
  EvalDataOptions data;
  std::string choices;
  std::string details;
  int64_t seq = 0;         // 0: what the run was trained on, else kSeqDefault
  int64_t stride = 0;      // 0: seq
  int64_t max_tokens = 0;  // 0: all
  int64_t limit = 0;       // questions; 0: all
  int64_t batch = 0;       // 0: 8, fewer where the cache would be large
  std::string precision = "fp32";
  bool is_json = false;
  bool is_quiet = false;

  std::FILE* progress() const { return is_quiet ? nullptr : stderr; }
};

Status Print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    return ErrnoError(errno, "write to standard output");
  }
  return OkStatus();
}

Status PrintJson(const Json& json) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(json, 2));
  return Print(text + "\n");
}

// --- Loss.

struct LossPlan {
  int64_t seq, stride, batch;
};

StatusOr<LossPlan> PlanLoss(const Flags& flags, const ModelFiles& files, int64_t num_tokens) {
  const int64_t positions = files.config.max_positions;
  LossPlan plan;
  plan.seq =
      flags.seq > 0 ? flags.seq : std::min(positions, TrainedSeq(files).value_or(kSeqDefault));
  if (plan.seq > positions) {
    return InvalidArgumentError("--seq ", plan.seq, ": ", files.path, " has ", positions,
                                " positions");
  }
  plan.stride = flags.stride > 0 ? flags.stride : plan.seq;
  if (plan.stride > plan.seq) {
    return InvalidArgumentError("--stride ", plan.stride, ": over --seq ", plan.seq,
                                ", tokens between windows would be left out");
  }
  plan.batch = flags.batch > 0 ? flags.batch : 8;
  // A short text needs no padding to the whole length; the figures are the same.
  plan.seq = std::clamp<int64_t>(num_tokens, 1, plan.seq);
  plan.stride = std::min(plan.stride, plan.seq);
  return plan;
}

Status ReportLoss(const Flags& flags, const ModelFiles& files, const std::string& data,
                  const LossPlan& plan, const LossResult& result, double seconds) {
  const double rate = static_cast<double>(result.num_tokens) / std::max(seconds, 1e-9);
  if (flags.is_json) {
    Json json = {{"task", "loss"},
                 {"model", files.path},
                 {"format", ModelFormatName(files.format)},
                 {"data", data},
                 {"loss", result.loss()},
                 {"perplexity", result.perplexity()},
                 {"bits_per_byte", nullptr},
                 {"tokens", result.num_tokens},
                 {"bytes", nullptr},
                 {"seq", plan.seq},
                 {"stride", plan.stride},
                 {"precision", flags.precision},
                 {"seconds", seconds},
                 {"tokens_per_s", rate}};
    if (result.num_bytes) json["bytes"] = *result.num_bytes;
    if (result.bits_per_byte()) json["bits_per_byte"] = *result.bits_per_byte();
    return PrintJson(json);
  }
  std::string text = StrFormat("loss %.6f  perplexity %.4f", result.loss(), result.perplexity());
  if (result.bits_per_byte()) text += StrFormat("  bits per byte %.6f", *result.bits_per_byte());
  text += StrCat("\n", data, ": ", result.num_tokens, " tokens predicted");
  if (result.num_bytes) text += StrCat(", ", *result.num_bytes, " bytes");
  text += StrCat("; ", flags.precision, ", seq ", plan.seq, ", stride ", plan.stride, "; ",
                 HumanSeconds(seconds), StrFormat(", %.0f tokens/s\n", rate));
  return Print(text);
}

Status RunLoss(const Flags& flags, const ModelFiles& files) {
  EvalDataOptions data_options = flags.data;
  data_options.progress = flags.progress();
  data_options.stop = &stop_requested;
  if (flags.max_tokens > 0) data_options.tokens_max = flags.max_tokens + 1;
  CRIA_ASSIGN_OR_RETURN(const EvalData data, OpenEvalData(data_options, files));
  const int64_t tokens_max = flags.max_tokens > 0 ? flags.max_tokens : INT64_MAX;
  CRIA_ASSIGN_OR_RETURN(const LossPlan plan,
                        PlanLoss(flags, files, std::min(tokens_max, data.text->num_tokens())));
  const EvalWindows windows(data.text.get(), {.seq = plan.seq,
                                              .stride = plan.stride,
                                              .tokens_max = tokens_max,
                                              .vocab = files.config.vocab});
  if (windows.count() == 0) return InvalidArgumentError(data.text->name(), ": no tokens");
  const std::unique_ptr<model::Ops> ops = model::cpu::NewCpuOps();
  model::Llama llama(files.config,
                     {.precision = *model::PrecisionFromName(flags.precision),
                      .max_batch = std::min(plan.batch, windows.count()),
                      .max_time = plan.seq,
                      .training = false},
                     ops.get());
  CRIA_RETURN_IF_ERROR(LoadWeights(*files.weights, llama.layout(), llama.weights()));
  llama.WeightsChanged();
  std::optional<Progress> progress;
  if (!flags.is_quiet) {
    progress.emplace(stderr, "eval", static_cast<double>(windows.count()), "windows", RealClock());
  }
  const double start = RealClock()->MonotonicSeconds();
  LossOptions options = {.batch = std::min(plan.batch, windows.count())};
  options.progress = [&](const LossResult& so_far) {
    if (progress) {
      progress->Update(static_cast<double>(so_far.num_windows),
                       StrFormat("loss %.4f", so_far.loss()));
    }
    return !stop_requested;
  };
  CRIA_ASSIGN_OR_RETURN(
      const LossResult result,
      EvaluateLoss(&llama, windows, data.tokenizer ? &*data.tokenizer : nullptr, options));
  const double seconds = RealClock()->MonotonicSeconds() - start;
  if (progress) progress->Finish();
  return ReportLoss(flags, files, data.text->name(), plan, result, seconds);
}

// --- Multiple choice.

StatusOr<std::vector<ChoiceTokens>> EncodeAll(const Flags& flags, const ModelFiles& files,
                                              const std::vector<ChoiceQuestion>& questions) {
  CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, FindTokenizer(flags.data.tokenizer, files));
  const std::optional<int32_t> bos = files.bos_id ? files.bos_id : tokenizer.bos_id();
  ChoiceTokensOptions options;
  if (!flags.data.no_bos) options.bos_id = bos;
  options.prefix_id = bos ? bos : tokenizer.eos_id();
  options.positions_max = flags.seq > 0 ? flags.seq : files.config.max_positions;
  if (options.positions_max > files.config.max_positions) {
    return InvalidArgumentError("--seq ", flags.seq, ": ", files.path, " has ",
                                files.config.max_positions, " positions");
  }
  std::vector<ChoiceTokens> tokens;
  for (const ChoiceQuestion& question : questions) {
    const std::string where = StrCat(flags.choices, ":", question.line);
    CRIA_ASSIGN_OR_RETURN(ChoiceTokens encoded, EncodeChoices(question, tokenizer, options, where));
    tokens.push_back(std::move(encoded));
  }
  return tokens;
}

// The longest sequence, the most choices, and as many questions at once as fit.
model::DecoderOptions PlanDecoder(const Flags& flags, const ModelFiles& files,
                                  const std::vector<ChoiceTokens>& questions) {
  int64_t longest = 1, most = 1;
  for (const ChoiceTokens& question : questions) {
    most = std::max(most, static_cast<int64_t>(question.continuations.size()));
    for (size_t c = 0; c < question.continuations.size(); ++c) {
      longest = std::max(longest, static_cast<int64_t>(question.ContextOf(c).size() +
                                                       question.continuations[c].size()) -
                                      1);
    }
  }
  model::DecoderOptions options;
  options.type = flags.precision == "bf16" ? model::DType::kBF16 : model::DType::kF32;
  options.max_positions = longest;
  const int64_t question_bytes = most * longest * 2 * files.config.layers * files.config.KvDim() *
                                 (flags.precision == "bf16" ? 2 : 4);
  const int64_t batch =
      flags.batch > 0 ? flags.batch : std::clamp<int64_t>(kCacheBytes / question_bytes, 1, 8);
  options.max_sequences = most * std::min(batch, static_cast<int64_t>(questions.size()));
  options.max_rows = kRowsMax;
  options.max_logits = std::clamp<int64_t>(kLogitsBytes / (4 * files.config.vocab), 32, kRowsMax);
  return options;
}

Json DetailsOf(const ChoiceQuestion& question, const ChoiceScores& scores) {
  const ChoicePicks picks = PickChoices(scores);
  return {{"line", question.line},           {"answer", question.answer},
          {"log_probs", scores.log_probs},   {"tokens", scores.tokens},
          {"characters", scores.characters}, {"pick", picks.plain},
          {"pick_norm", picks.by_character}, {"pick_norm_token", picks.by_token}};
}

Status ReportChoices(const Flags& flags, const ModelFiles& files,
                     const std::vector<ChoiceQuestion>& questions,
                     const std::vector<ChoiceScores>& scores, int64_t num_truncated,
                     double seconds) {
  if (!flags.details.empty()) {
    std::string lines;
    for (size_t i = 0; i < scores.size(); ++i) {
      CRIA_ASSIGN_OR_RETURN(const std::string line, DumpJson(DetailsOf(questions[i], scores[i])));
      lines += line + "\n";
    }
    CRIA_RETURN_IF_ERROR(WriteFileAtomic(flags.details, lines));
  }
  const ChoiceAccuracy a = MeasureAccuracy(scores);
  if (flags.is_json) {
    return PrintJson({{"task", "choices"},
                      {"model", files.path},
                      {"format", ModelFormatName(files.format)},
                      {"data", flags.choices},
                      {"n", a.num_questions},
                      {"acc", a.acc.value},
                      {"acc_stderr", a.acc.standard_error},
                      {"acc_norm", a.acc_norm.value},
                      {"acc_norm_stderr", a.acc_norm.standard_error},
                      {"acc_norm_token", a.acc_norm_token.value},
                      {"acc_norm_token_stderr", a.acc_norm_token.standard_error},
                      {"truncated", num_truncated},
                      {"precision", flags.precision},
                      {"seconds", seconds}});
  }
  const auto line = [](const char* name, const Accuracy& accuracy) {
    return StrFormat("%-15s %.4f +- %.4f\n", name, accuracy.value, accuracy.standard_error);
  };
  std::string text =
      line("acc", a.acc) + line("acc_norm", a.acc_norm) + line("acc_norm_token", a.acc_norm_token);
  text += StrCat(flags.choices, ": ", a.num_questions, " questions; ", flags.precision, "; ",
                 HumanSeconds(seconds), "\n");
  if (num_truncated > 0) {
    text += StrCat(num_truncated, " questions were too long and lost the start of their context\n");
  }
  return Print(text);
}

Status RunChoices(const Flags& flags, const ModelFiles& files) {
  CRIA_ASSIGN_OR_RETURN(const std::vector<ChoiceQuestion> questions,
                        ReadChoices(flags.choices, flags.limit > 0 ? flags.limit : INT64_MAX));
  CRIA_ASSIGN_OR_RETURN(const std::vector<ChoiceTokens> tokens, EncodeAll(flags, files, questions));
  const std::unique_ptr<model::Ops> ops = model::cpu::NewCpuOps();
  CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<model::LlamaDecoder> decoder,
                        model::LlamaDecoder::Load(files.config, PlanDecoder(flags, files, tokens),
                                                  *files.weights, ops.get()));
  ChoiceScorer scorer(decoder.get(), ops.get());
  std::optional<Progress> progress;
  if (!flags.is_quiet) {
    progress.emplace(stderr, "eval", static_cast<double>(tokens.size()), "questions", RealClock());
  }
  const double start = RealClock()->MonotonicSeconds();
  std::vector<ChoiceScores> scores;
  int64_t num_truncated = 0;
  while (scores.size() < tokens.size()) {
    if (stop_requested) return CancelledError("interrupted");
    const std::span<const ChoiceTokens> rest = std::span(tokens).subspan(scores.size());
    const std::span<const ChoiceTokens> group = rest.first(scorer.CountThatFit(rest));
    for (std::vector<double>& log_probs : scorer.Score(group)) {
      const ChoiceQuestion& question = questions[scores.size()];
      const ChoiceTokens& encoded = tokens[scores.size()];
      ChoiceScores s = {.log_probs = std::move(log_probs), .answer = question.answer};
      for (size_t c = 0; c < question.choices.size(); ++c) {
        s.characters.push_back(CountCharacters(question.choices[c]));
        s.tokens.push_back(static_cast<int64_t>(encoded.continuations[c].size()));
      }
      scores.push_back(std::move(s));
      num_truncated += encoded.is_truncated;
    }
    if (progress) {
      progress->Update(static_cast<double>(scores.size()),
                       StrFormat("acc_norm %.3f", MeasureAccuracy(scores).acc_norm.value));
    }
  }
  const double seconds = RealClock()->MonotonicSeconds() - start;
  if (progress) progress->Finish();
  return ReportChoices(flags, files, questions, scores, num_truncated, seconds);
}

Status RunEval(const Flags& flags) {
  const int num_sources =
      !flags.data.data.empty() + !flags.data.text.empty() + !flags.choices.empty();
  if (num_sources > 1) return InvalidArgumentError("--data, --text, --choices: one of the three");
  CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenModel(flags.model));
  CRIA_RETURN_IF_ERROR(flags.choices.empty() ? RunLoss(flags, files) : RunChoices(flags, files));
  if (std::fflush(stdout) != 0) return ErrnoError(errno, "write to standard output");
  return OkStatus();
}

void AddOptions(CLI::App* app, Flags* flags) {
  const CLI::Range positive(int64_t{1}, int64_t{1} << 40);
  app->add_option(
         "model", flags->model,
         "a folder of Hugging Face's format or of `cria train`, a GGUF file, Meta's folder")
      ->required();
  app->add_option("--data", flags->data.data,
                  "a folder of `cria data`, or llm.c's token shards. A run without any of --data, "
                  "--text, --choices is evaluated on its own validation data");
  app->add_option("--split", flags->data.split, "of a prepared folder: val or train")
      ->check(CLI::IsMember({"val", "train"}))
      ->capture_default_str();
  app->add_option("--text", flags->data.text,
                  "text or JSONL files, also .zst, and folders of them; - is standard input");
  app->add_option("--field", flags->data.field, "of JSONL text: the key of the text")
      ->capture_default_str();
  app->add_option("--split-on", flags->data.split_on,
                  "of text files: what separates documents (none: a file is a document)");
  app->add_option("--choices", flags->choices,
                  "JSONL of multiple-choice questions: context, choices, answer; or HellaSwag's "
                  "ctx, endings, label");
  app->add_option("--details", flags->details,
                  "with --choices: write each question's log-probabilities to this JSONL file");
  app->add_option("--limit", flags->limit, "with --choices: only the first questions")
      ->check(positive);
  app->add_option("--seq", flags->seq,
                  "tokens the model sees at once (a run: what it was trained on; else 1024; "
                  "--choices: the model's positions)")
      ->check(positive);
  app->add_option("--stride", flags->stride,
                  "tokens from a window to the next (default: --seq); with less, tokens see at "
                  "least seq - stride + 1 tokens before them")
      ->check(positive);
  app->add_option("--max-tokens", flags->max_tokens, "only the first tokens of the data")
      ->check(positive);
  app->add_option("--batch", flags->batch, "windows, or questions, at once (default: up to 8)")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app->add_option("--precision", flags->precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app->add_option("--tokenizer", flags->data.tokenizer,
                  "a tokenizer.json, or a folder with one, instead of the model's");
  app->add_flag("--any-tokenizer", flags->data.any_tokenizer,
                "take data that another tokenizer encoded");
  app->add_flag("--no-bos", flags->data.no_bos,
                "texts and contexts don't begin with begin-of-text");
  app->add_flag("--json", flags->is_json, "print one JSON object");
  app->add_flag("--quiet", flags->is_quiet, "no progress on standard error");
}

int Main(int argc, char** argv) {
  StopSignals signals;  // before any other thread
  CLI::App app(
      "A model's loss on data or text, or its accuracy on multiple-choice questions.\n\n"
      "  cria eval runs/default\n"
      "  cria eval Llama-3.2-1B --text book.txt --seq 2048 --stride 1024\n"
      "  cria eval Llama-3.2-1B --choices hellaswag_val.jsonl --json",
      "cria eval");
  Flags flags;
  AddOptions(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  signals.Take([](int signal_number) {
    if (stop_requested.exchange(true)) _exit(128 + signal_number);
  });
  const Status status = RunEval(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "cria eval: %s\n", Message(status).c_str());
  return status.code() == StatusCode::kCancelled ? 130 : ExitCode(status);
}

}  // namespace
}  // namespace cria::trainer

int main(int argc, char** argv) { return cria::trainer::Main(argc, argv); }
