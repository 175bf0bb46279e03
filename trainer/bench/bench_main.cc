// `cria bench`: what runs how fast, verified before it is timed.
//
// Exit: 0 done; 1 a verification failed or something went wrong; 2 usage.

#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "trainer/bench/generate_bench.h"
#include "trainer/bench/layouts_bench.h"
#include "trainer/bench/numerics_bench.h"
#include "trainer/bench/ops_bench.h"
#include "trainer/bench/tokenizer_bench.h"
#include "trainer/bench/train_bench.h"

namespace cria::trainer {
namespace {

using model::Precision;

constexpr int kMaxThreads = 256;
constexpr int kMaxReps = 10000;

std::string NamesOf(const std::vector<Precision>& precisions) {
  std::string names;
  for (const Precision precision : precisions) {
    names += StrCat(names.empty() ? "" : ",", model::PrecisionName(precision));
  }
  return names;
}

struct TrainFlags {
  TrainBenchOptions options;
  std::vector<std::string> precisions;
  bool layouts = false;
  LayoutsBenchOptions layouts_options;
};

void AddTrain(CLI::App* app, TrainFlags* flags) {
  TrainBenchOptions& options = flags->options;
  app->add_option("--peer", options.peer,
                  "A Python interpreter with PyTorch: the same step there, eager and compiled")
      ->type_name("PYTHON");
  app->add_option("--precision", flags->precisions,
                  "Names with commas, or all; default " + NamesOf(options.precisions))
      ->delimiter(',')
      ->check([](const std::string& name) {
        return name == "all" || model::PrecisionFromName(name) ? ""
                                                               : "no precision \"" + name + '"';
      });
  app->add_option("--threads", options.threads, "Numbers of threads with commas")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxThreads))
      ->capture_default_str();
  app->add_option("--reps", options.reps, "Timed rounds, each runs everything once")
      ->check(CLI::Range(1, kMaxReps))
      ->capture_default_str();
  app->add_flag("--tiny", options.tiny, "A tiny model, for a test of the benchmark");
  app->add_flag("--json", options.json, "The result as JSON, all else on standard error");
  CLI::Option* const layouts = app->add_flag(
      "--layouts", flags->layouts, "Instead: two ranks in each layout beside one process");
  LayoutsBenchOptions& layouts_options = flags->layouts_options;
  app->add_option("--config", layouts_options.config, "With --layouts: a job's file or name")
      ->needs(layouts)
      ->capture_default_str();
  app->add_option("--set", layouts_options.set, "With --layouts: key=value over the job")
      ->needs(layouts)
      ->take_all();
  app->add_option("--folder", layouts_options.folder)->group("");  // of a rank that it started
}

// `arguments` are this program's.
Status RunLayouts(const TrainFlags& flags, const std::vector<std::string>& arguments) {
  LayoutsBenchOptions options = flags.layouts_options;
  options.rounds = flags.options.reps;
  options.json = flags.options.json;
  return RunLayoutsBench(options, arguments, stdout, options.json ? stderr : stdout);
}

Status RunTrain(TrainFlags flags) {
  TrainBenchOptions& options = flags.options;
  if (!flags.precisions.empty()) options.precisions.clear();
  for (const std::string& name : flags.precisions) {
    for (const std::string& one : name == "all" ? model::PrecisionNames() : std::vector{name}) {
      options.precisions.push_back(*model::PrecisionFromName(one));
    }
  }
  return RunTrainBench(options, stdout, options.json ? stderr : stdout);
}

struct NumericsFlags {
  NumericsBenchOptions options;
  std::vector<std::string> precisions = model::PrecisionNames();
};

void AddNumerics(CLI::App* app, NumericsFlags* flags) {
  NumericsBenchOptions& options = flags->options;
  app->add_option("config", options.config, "A job's YAML file, or the name of one in configs/jobs")
      ->capture_default_str();
  app->add_option("--set", options.set, "key=value over the file")->take_all();
  app->add_option("--precision", flags->precisions, "Names with commas; default: all")
      ->delimiter(',')
      ->check(CLI::IsMember(model::PrecisionNames()));
  app->add_option("--steps", options.steps, "Optimizer steps of each run")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app->add_flag("--json", options.json, "The result as JSON, all else on standard error");
}

Status RunNumerics(NumericsFlags flags) {
  for (const std::string& name : flags.precisions) {
    flags.options.precisions.push_back(*model::PrecisionFromName(name));
  }
  return RunNumericsBench(flags.options, stdout, stderr);
}

struct OpsFlags {
  OpsBenchOptions options;
  std::string precision = "fp32";
};

void AddOps(CLI::App* app, OpsFlags* flags) {
  OpsBenchOptions& options = flags->options;
  app->add_option("--precision", flags->precision, "fp32, bf16, fp8_tensorwise, ...")
      ->check(CLI::IsMember(model::PrecisionNames()))
      ->capture_default_str();
  app->add_option("--threads", options.threads, "Threads; default: CRIA_THREADS or all cores")
      ->check(CLI::Range(1, kMaxThreads));
  app->add_option("--reps", options.reps, "Timed rounds")
      ->check(CLI::Range(1, kMaxReps))
      ->capture_default_str();
  app->add_flag("--cpu-time", options.cpu_time,
                "Count the time of this process alone: on a busy machine, with one thread");
  app->add_flag("--tiny", options.tiny, "A tiny model, for a test of the benchmark");
  app->add_flag("--json", options.json, "The result as JSON, all else on standard error");
}

Status RunOps(OpsFlags flags) {
  flags.options.precision = *model::PrecisionFromName(flags.precision);
  return RunOpsBench(flags.options, stdout, flags.options.json ? stderr : stdout);
}

struct GenerateFlags {
  GenerateBenchOptions options;
  std::vector<std::string> precisions = {"fp32", "bf16"};
};

void AddGenerate(CLI::App* app, GenerateFlags* flags) {
  GenerateBenchOptions& options = flags->options;
  app->add_option("--peer", options.peer, "A Python interpreter with llama-cpp-python")
      ->type_name("PYTHON");
  app->add_option("--precision", flags->precisions, "fp32, bf16, or both with a comma")
      ->delimiter(',')
      ->check(CLI::IsMember({"fp32", "bf16"}));
  app->add_option("--threads", options.threads, "Numbers of threads with commas")
      ->delimiter(',')
      ->check(CLI::Range(1, kMaxThreads))
      ->capture_default_str();
  app->add_option("--prompt", options.prompt, "Tokens of the prompt")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app->add_option("--tokens", options.tokens, "Tokens decoded after it")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--reps", options.reps, "Timed rounds, each runs everything once")
      ->check(CLI::Range(1, kMaxReps))
      ->capture_default_str();
  app->add_flag("--tiny", options.tiny, "A tiny model, for a test of the benchmark");
  app->add_flag("--json", options.json, "The result as JSON, all else on standard error");
}

Status RunGenerate(GenerateFlags flags) {
  GenerateBenchOptions& options = flags.options;
  options.types.clear();
  for (const std::string& name : flags.precisions) {
    options.types.push_back(name == "bf16" ? model::DType::kBF16 : model::DType::kF32);
  }
  return RunGenerateBench(options, stdout, options.json ? stderr : stdout);
}

void AddTokenizer(CLI::App* app, TokenizerBenchOptions* options) {
  app->add_option("TEXT", options->text_path, "A text file; default: the King James Bible");
  app->add_option("--peer", options->peer_python,
                  "A Python interpreter with tiktoken and tokenizers")
      ->type_name("PYTHON");
  app->add_option("--vocab-size", options->vocab_size, "Tokens of the vocabulary that is learned")
      ->check(CLI::Range(256, 1 << 20))
      ->capture_default_str();
  app->add_option("--reps", options->num_rounds, "Timed rounds, each runs everything once")
      ->check(CLI::Range(1, kMaxReps))
      ->capture_default_str();
  app->add_flag("--json", options->is_json, "The result as JSON, all else on standard error");
}

int Main(int argc, char** argv) {
  CLI::App app("Benchmarks, verified before timed", "cria bench");
  app.require_subcommand(1);
  TrainFlags train;
  OpsFlags ops;
  CLI::App* const train_app =
      app.add_subcommand("train", "Tokens a second of a training step, beside oneDNN and PyTorch");
  CLI::App* const ops_app = app.add_subcommand("ops", "Each operation's share of that step");
  NumericsFlags numerics;
  CLI::App* const numerics_app = app.add_subcommand(
      "numerics", "Validation loss of each precision beside fp32's, after the same steps");
  AddNumerics(numerics_app, &numerics);
  GenerateFlags generate;
  CLI::App* const generate_app =
      app.add_subcommand("generate", "Tokens a second of prompts and decoding, beside llama.cpp");
  AddGenerate(generate_app, &generate);
  TokenizerBenchOptions tokenizer;
  CLI::App* const tokenizer_app = app.add_subcommand(
      "tokenizer", "Encoding and learning a vocabulary, beside other tokenizers");
  AddTokenizer(tokenizer_app, &tokenizer);
  AddTrain(train_app, &train);
  AddOps(ops_app, &ops);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  Status status;
  if (*train_app) {
    status = train.layouts ? RunLayouts(train, {argv + 1, argv + argc}) : RunTrain(train);
  }
  if (*ops_app) status = RunOps(ops);
  if (*numerics_app) status = RunNumerics(numerics);
  if (*generate_app) status = RunGenerate(generate);
  if (*tokenizer_app) status = RunTokenizerBench(tokenizer);
  if (!status.ok()) std::fprintf(stderr, "cria bench: %s\n", Message(status).c_str());
  return ExitCode(status);
}

}  // namespace
}  // namespace cria::trainer

int main(int argc, char** argv) { return cria::trainer::Main(argc, argv); }
