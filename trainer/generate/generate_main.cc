// `cria generate`: continue prompts, or talk to a model.
//
// Exit: 0 done; 1 something went wrong; 2 usage; 130 interrupted, after what there was.

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
#include "base/json.h"
#include "base/status.h"
#include "base/stop_signals.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/decoder.h"
#include "trainer/generate/chat_loop.h"
#include "trainer/generate/chat_template.h"
#include "trainer/generate/generator.h"
#include "trainer/generate/prompts.h"
#include "trainer/generate/terminal_text.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

// The first asks for the end of what is running, the second ends at once.
std::atomic<int> num_stop_signals{0};

struct Flags {
  std::string model;
  PromptSources prompts;
  GenerateOptions generate;
  std::string precision = "auto";
  int64_t max_seq = 0;  // 0: what the prompts need
  int64_t batch = 0;    // 0: up to kBatchDefault
  bool ignore_eos = false;
  bool no_bos = false;
  bool parse_special = false;
  bool chat = false;
  std::string system;
  std::string date;
  bool is_json = false;
  bool is_quiet = false;
  bool is_verbose = false;
};

constexpr int64_t kBatchDefault = 8;
constexpr int64_t kRowsMax = 512;      // tokens of prompts in one forward pass
constexpr int64_t kChatSeqMax = 8192;  // of a conversation, unless --max-seq says another

// bf16 where every matrix is stored in 16 bits: fp32 would add nothing but bytes to read.
model::DType StoredType(const model::WeightSource& weights) {
  for (const model::WeightInfo& w : weights.weights()) {
    const bool is_half = w.dtype == model::StDtype::kBF16 || w.dtype == model::StDtype::kF16;
    if (w.shape.size() > 1 && !is_half) return model::DType::kF32;
  }
  return model::DType::kBF16;
}

StatusOr<const Tokenizer*> NeedTokenizer(const ModelFiles& files) {
  if (files.tokenizer) return &*files.tokenizer;
  const std::string why =
      files.tokenizer_status.ok() ? "" : StrCat(" (", Message(files.tokenizer_status), ")");
  return InvalidArgumentError(files.path, ": the model has no tokenizer", why,
                              "; prompts can be given as ids: --prompt-ids 1,2,3");
}

StatusOr<std::vector<int32_t>> EncodePrompt(const Flags& flags, const ModelFiles& files,
                                            const ChatTemplate* chat, const PromptInput& input) {
  if (!input.text) {
    if (chat == nullptr) return input.ids;
    return InvalidArgumentError("--chat takes texts, no ids");
  }
  CRIA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, NeedTokenizer(files));
  std::vector<int32_t> ids;
  if (chat == nullptr) {
    tokenizer->Encode(*input.text,
                      {.parse_special = flags.parse_special, .add_template = !flags.no_bos}, &ids);
    return ids;
  }
  ids = chat->Start({.system = flags.system, .date = flags.date});
  chat->AddMessage("user", *input.text, &ids);
  chat->StartReply(&ids);
  return ids;
}

// How long sequences may be, checked against the prompts and the model.
StatusOr<int64_t> SequenceLength(const Flags& flags, const ModelFiles& files,
                                 const std::vector<Prompt>& prompts) {
  const int64_t positions = files.config.max_positions;
  if (flags.max_seq > positions) {
    return InvalidArgumentError("--max-seq ", flags.max_seq, ": the model has ", positions,
                                " positions");
  }
  int64_t longest = 0;
  size_t which = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts[i].ids.size());
    if (length > longest) which = i;
    longest = std::max(longest, length);
  }
  const int64_t limit = flags.max_seq > 0 ? flags.max_seq : positions;
  if (longest > limit) {
    return InvalidArgumentError("prompt ", which + 1, " has ", longest, " tokens; ",
                                flags.max_seq > 0 ? "--max-seq is " : "the model has ", limit,
                                flags.max_seq > 0 ? "" : " positions");
  }
  if (flags.max_seq > 0) return flags.max_seq;
  if (prompts.empty()) return std::min(positions, kChatSeqMax);
  return std::max<int64_t>(
      1, std::min(positions, longest + std::min(flags.generate.max_tokens, positions)));
}

StatusOr<model::DecoderOptions> PlanDecoder(const Flags& flags, const ModelFiles& files,
                                            const std::vector<Prompt>& prompts) {
  model::DecoderOptions options;
  options.type = flags.precision == "fp32"   ? model::DType::kF32
                 : flags.precision == "bf16" ? model::DType::kBF16
                                             : StoredType(*files.weights);
  CRIA_ASSIGN_OR_RETURN(options.max_positions, SequenceLength(flags, files, prompts));
  const auto count = std::max<int64_t>(1, static_cast<int64_t>(prompts.size()));
  options.max_sequences = std::min(count, flags.batch > 0 ? flags.batch : kBatchDefault);
  int64_t rows = prompts.empty() ? kRowsMax : 0;
  for (const Prompt& prompt : prompts) rows += static_cast<int64_t>(prompt.ids.size());
  options.max_rows = std::max(options.max_sequences, std::min(rows, kRowsMax));
  options.max_logits = options.max_sequences;
  return options;
}

// Prints texts in the order of the prompts, the current one as it comes.
class Printer {
 public:
  Printer(const std::vector<PromptInput>& inputs, bool is_terminal)
      : inputs_(inputs), is_terminal_(is_terminal), texts_(inputs.size()), done_(inputs.size()) {
    Begin();
  }

  void Add(size_t place, std::string_view text) {
    if (place == current_) return Print(text);
    texts_[place] += text;
  }

  void Done(size_t place) {
    done_[place] = true;
    while (current_ < inputs_.size() && done_[current_]) {
      if (!ends_line_) Print("\n");
      ++current_;
      Begin();
    }
  }

 private:
  void Begin() {
    if (current_ == inputs_.size()) return;
    if (inputs_.size() > 1) {
      Print(StrCat("--- prompt ", current_ + 1, " of ", inputs_.size(), ": ",
                   inputs_[current_].Label(), "\n"));
    }
    ends_line_ = false;
    Print(std::exchange(texts_[current_], {}));
  }

  void Print(std::string_view text) {
    if (text.empty()) return;
    ends_line_ = text.ends_with('\n');
    const std::string shown = is_terminal_ ? TerminalText(text) : std::string(text);
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  }

  const std::vector<PromptInput>& inputs_;
  const bool is_terminal_;
  std::vector<std::string> texts_;  // of prompts whose turn has not come
  std::vector<bool> done_;
  size_t current_ = 0;
  bool ends_line_ = false;
};

// A list, an entry a line.
Status PrintJson(const Json& list) {
  std::string text = "[";
  for (const Json& entry : list) {
    CRIA_ASSIGN_OR_RETURN(const std::string line, DumpJson(entry));
    text += StrCat(text.size() > 1 ? ",\n " : "", line);
  }
  std::printf("%s]\n", text.c_str());
  return OkStatus();
}

Json ResultJson(const std::optional<std::string>& prompt, const std::vector<int32_t>& prompt_ids,
                const Generation& generation) {
  Json json = Json::object();
  if (prompt) json["prompt"] = ReplaceInvalidUtf8(*prompt);
  json["prompt_ids"] = prompt_ids;
  json["ids"] = generation.ids;
  json["text"] = generation.text;
  json["finish_reason"] = FinishReasonName(generation.reason);
  return json;
}

Status RunPrompts(const Flags& flags, const std::vector<PromptInput>& inputs,
                  const std::vector<Prompt>& prompts, Generator* generator) {
  std::optional<Printer> printer;
  if (!flags.is_json) printer.emplace(inputs, isatty(STDOUT_FILENO) == 1);
  Generator::Callbacks callbacks = {.stop = &num_stop_signals};
  if (printer) {
    callbacks.on_text = [&](size_t place, std::string_view text) { printer->Add(place, text); };
    callbacks.on_done = [&](size_t place, const Generation&) { printer->Done(place); };
  }
  CRIA_ASSIGN_OR_RETURN(const std::vector<Generation> results,
                        generator->Run(prompts, flags.generate, callbacks));
  if (!flags.is_json) return OkStatus();
  Json list = Json::array();
  for (size_t i = 0; i < results.size(); ++i) {
    list.push_back(ResultJson(inputs[i].text, prompts[i].ids, results[i]));
  }
  return PrintJson(list);
}

Status RunChat(const Flags& flags, const ChatTemplate& chat, Generator* generator) {
  const bool is_terminal = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
  Json list = Json::array();
  ChatLoop loop(&chat, generator,
                {.start = {.system = flags.system, .date = flags.date},
                 .generate = flags.generate,
                 .is_terminal = is_terminal,
                 .in = STDIN_FILENO,
                 .out = flags.is_json ? nullptr : stdout,
                 .stop = &num_stop_signals,
                 .on_turn = [&](const ChatTurn& turn) {
                   list.push_back(ResultJson(turn.message, turn.prompt_ids, turn.reply));
                 }});
  CRIA_RETURN_IF_ERROR(loop.Run());
  return flags.is_json ? PrintJson(list) : OkStatus();
}

void PrintStats(const GenerateStats& stats) {
  const std::string cached =
      stats.cached_tokens > 0 ? StrCat(" and ", stats.cached_tokens, " from the cache") : "";
  std::fprintf(stderr, "prompt: %lld tokens%s in %s, %.1f tokens/s",
               static_cast<long long>(stats.prompt_tokens), cached.c_str(),
               HumanSeconds(stats.prompt_seconds).c_str(), stats.PromptTokensPerSecond());
  if (stats.decode_steps > 0) {
    std::fprintf(
        stderr, "; decoding: %lld tokens in %s, %.1f tokens/s (%.1f a step)",
        static_cast<long long>(stats.decode_tokens), HumanSeconds(stats.decode_seconds).c_str(),
        stats.DecodeTokensPerSecond(),
        static_cast<double>(stats.decode_tokens) / static_cast<double>(stats.decode_steps));
  }
  std::fprintf(stderr, "\n");
}

void PrintModel(const ModelFiles& files, const model::DecoderOptions& options,
                const model::Ops& ops) {
  int64_t parameters = 0;
  for (const model::WeightInfo& w : files.weights->weights()) parameters += w.rows() * w.columns();
  const auto bytes =
      static_cast<double>(model::LlamaDecoder::PlanBytes(files.config, options, ops));
  std::fprintf(stderr,
               "%s (%s): %s parameters as %s; %lld sequences of %lld tokens; %s of memory\n",
               files.path.c_str(), ModelFormatName(files.format),
               HumanCount(static_cast<double>(parameters)).c_str(), model::DTypeName(options.type),
               static_cast<long long>(options.max_sequences),
               static_cast<long long>(options.max_positions), HumanBytes(bytes).c_str());
}

Status RunGenerate(Flags flags, StopSignals* signals) {
  CRIA_RETURN_IF_ERROR(Validate(flags.generate.sampling));
  CRIA_ASSIGN_OR_RETURN(const std::vector<PromptInput> inputs, ReadPrompts(flags.prompts));
  if (inputs.empty() && !flags.chat) {
    return InvalidArgumentError(
        "no prompt: --prompt TEXT, --prompt - (standard input), --prompts "
        "FILE or --prompt-ids 1,2,3");
  }
  CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenModel(flags.model));
  std::optional<ChatTemplate> chat;
  if (!flags.ignore_eos) flags.generate.eos_ids = files.eos_ids;
  if (flags.chat) {
    CRIA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, NeedTokenizer(files));
    CRIA_ASSIGN_OR_RETURN(
        chat, ChatTemplate::Create(files.chat_template, *tokenizer, files.bos_id, files.path));
    if (flags.date.empty()) flags.date = chat->DefaultDate(DayOf(RealClock()->UnixSeconds()));
    if (!flags.ignore_eos) flags.generate.eos_ids.push_back(chat->eot_id());
  }
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    StatusOr<std::vector<int32_t>> ids =
        EncodePrompt(flags, files, chat ? &*chat : nullptr, inputs[i]);
    if (!ids.ok()) return ids.status();
    prompts.push_back({.ids = *std::move(ids), .index = i});
  }
  CRIA_ASSIGN_OR_RETURN(const model::DecoderOptions options, PlanDecoder(flags, files, prompts));
  const std::unique_ptr<model::Ops> ops = model::cpu::NewCpuOps();
  if (flags.is_verbose) PrintModel(files, options, *ops);
  CRIA_ASSIGN_OR_RETURN(
      const std::unique_ptr<model::LlamaDecoder> decoder,
      model::LlamaDecoder::Load(files.config, options, *files.weights, ops.get()));
  Generator generator(decoder.get(), files.tokenizer ? &*files.tokenizer : nullptr, RealClock());
  signals->Take([](int signal_number) {
    if (num_stop_signals.fetch_add(1) > 0) _exit(128 + signal_number);
  });
  CRIA_RETURN_IF_ERROR(inputs.empty() ? RunChat(flags, *chat, &generator)
                                      : RunPrompts(flags, inputs, prompts, &generator));
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return ErrnoError(errno, "write to standard output");
  }
  if (flags.is_verbose || (!flags.is_quiet && !flags.is_json)) PrintStats(generator.stats());
  return OkStatus();
}

void AddPromptOptions(CLI::App* app, Flags* flags) {
  // Without extra arguments, so that "[a, b]" is a text and no list.
  app->add_option(
         "MODEL", flags->model,
         "A folder of Hugging Face's format or of `cria train`, a GGUF file, Meta's folder")
      ->required();
  app->add_option("-p,--prompt", flags->prompts.texts,
                  "A text to continue (again for each); -: all of standard input, one text")
      ->allow_extra_args(false);
  app->add_option("--prompts", flags->prompts.files,
                  "A file with a prompt a line, or a .jsonl file with {\"prompt\": TEXT} or "
                  "{\"prompt_ids\": [...]} a line; -: standard input")
      ->allow_extra_args(false);
  app->add_option("--prompt-ids", flags->prompts.id_lists, "Ids to continue: 1,2,3")
      ->allow_extra_args(false);
  app->add_flag("--no-bos", flags->no_bos,
                "Put nothing before a text (the tokenizer's template puts begin-of-text)");
  app->add_flag("--parse-special", flags->parse_special,
                "Special tokens written in a text become their ids");
}

void AddGenerateOptions(CLI::App* app, Flags* flags) {
  GenerateOptions& generate = flags->generate;
  SamplingOptions& sampling = generate.sampling;
  app->add_option("-n,--max-tokens", generate.max_tokens, "The most tokens a prompt gets")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app->add_option("-t,--temperature", sampling.temperature, "0: always the most likely token")
      ->capture_default_str();
  app->add_option("--top-k", sampling.top_k, "Only the k most likely; 0: all")
      ->capture_default_str();
  app->add_option("--top-p", sampling.top_p, "Only the most likely that together have this much")
      ->capture_default_str();
  app->add_option("--min-p", sampling.min_p,
                  "Only those this likely, as a share of the most likely one")
      ->capture_default_str();
  app->add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Over 1: tokens of prompt and text become less likely")
      ->capture_default_str();
  app->add_option("--seed", sampling.seed, "The same seed gives the same texts")
      ->capture_default_str();
  app->add_option("--stop", generate.stop,
                  "A text that ends the output, before it (again for each)")
      ->allow_extra_args(false);
  app->add_flag("--ignore-eos", flags->ignore_eos, "Go on after an end-of-text token");
}

void AddOtherOptions(CLI::App* app, Flags* flags) {
  app->add_option("--precision", flags->precision,
                  "auto: bf16 where all matrices are stored in 16 bits, else fp32")
      ->check(CLI::IsMember({"auto", "fp32", "bf16"}))
      ->capture_default_str();
  app->add_option("--max-seq", flags->max_seq,
                  "Room for a prompt and its text, in tokens [what the prompts need; 8192 at most "
                  "for a conversation]")
      ->check(CLI::PositiveNumber);
  app->add_option("--batch", flags->batch, "Prompts at once [up to 8]")->check(CLI::PositiveNumber);
  CLI::Option* const chat = app->add_flag(
      "--chat", flags->chat,
      "Prompts are messages to a model with Llama 3's chat template; without a prompt, each line "
      "of standard input is one of a conversation. The templates of Llama 3 and of 3.1 on (which "
      "begin with the dates) are applied, without tools; special tokens in a message are text");
  app->add_option("--system", flags->system, "The system message")->needs(chat);
  app->add_option("--date", flags->date, "The day that 3.1's template says: 26 Jul 2024 [its own]")
      ->needs(chat);
  app->add_flag("--special", flags->generate.show_special, "Show special tokens");
  app->add_flag("--json", flags->is_json,
                "Print a list of {prompt, prompt_ids, ids, text, finish_reason}; reasons: eos, "
                "stop, length, interrupted");
  app->add_flag("-q,--quiet", flags->is_quiet, "No line of tokens/s on standard error");
  app->add_flag("-v,--verbose", flags->is_verbose, "Say what was loaded, and tokens/s always");
}

int Main(int argc, char** argv) {
  StopSignals signals;  // before any other thread
  CLI::App app(
      "Continue prompts, or talk to a model.\n\n"
      "  cria generate runs/default --prompt 'In the beginning'\n"
      "  cria generate Llama-3.2-1B --prompts questions.txt --temperature 0.7 --top-p 0.9 --json\n"
      "  cria generate Llama-3.2-1B-Instruct --chat\n\n"
      "Ctrl-C ends the text (exit 130, after what there is); in a conversation, the reply.",
      "cria generate");
  Flags flags;
  AddPromptOptions(&app, &flags);
  AddGenerateOptions(&app, &flags);
  AddOtherOptions(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const Status status = RunGenerate(std::move(flags), &signals);
  if (!status.ok()) {
    std::fflush(stdout);
    std::fprintf(stderr, "cria generate: %s\n", Message(status).c_str());
    return ExitCode(status);
  }
  return num_stop_signals > 0 ? 130 : 0;
}

}  // namespace
}  // namespace cria::trainer

int main(int argc, char** argv) { return cria::trainer::Main(argc, argv); }
