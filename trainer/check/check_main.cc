// cria check golden|tokenizer DIR...: numerics against what other programs computed.
// cria check layouts: every parallel layout against one rank.

#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "model/precision.h"
#include "trainer/check/golden_check.h"
#include "trainer/check/layouts_check.h"
#include "trainer/check/tokenizer_check.h"

namespace {

void AddLayouts(CLI::App* app, cria::trainer::LayoutsCheckOptions* options) {
  app->add_option("--config", options->config,
                  "a job's YAML file, or one of configs/jobs [layouts; layouts_fp8 with an FP8 "
                  "precision]");
  app->add_option("--set", options->set, "key=value over the file")->take_all();
  app->add_option("--ranks", options->ranks, "numbers of ranks, with commas")
      ->delimiter(',')
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app->add_option("--layouts", options->layouts,
                  "these alone: \"tp2,cp2; pp2,dp2,gradients,chunks2\"");
  app->add_option("--steps", options->steps, "steps of each run; default: the job's")
      ->check(CLI::PositiveNumber);
  app->add_option("--precision", options->precision, "fp32, bf16, ...; default: the job's")
      ->check(CLI::IsMember(cria::model::PrecisionNames()));
  app->add_option("--numerics", options->numerics, "default or invariant; default: the job's")
      ->check(CLI::IsMember({"default", "invariant"}));
  app->add_flag("--json", options->json, "the report as JSON, lines on standard error");
  app->add_option("--folder", options->folder)->group("");  // of a rank that the command started
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Compares our results with those of PyTorch, transformers and tokenizers, and those of "
      "parallel layouts with one rank's.",
      "cria check");
  app.require_subcommand(1);

  std::vector<std::string> dirs;
  std::string precision = "fp32";
  CLI::App* golden =
      app.add_subcommand("golden", "a model's logits, gradients and ten AdamW steps");
  golden->add_option("dir", dirs, "folders with config.json, model.safetensors, expected.json, ...")
      ->required();
  golden->add_option("--precision", precision, "fp32, bf16, fp8_tensorwise, ...")
      ->check(CLI::IsMember(cria::model::PrecisionNames()));
  CLI::App* tokenizer = app.add_subcommand("tokenizer", "a tokenizer.json's ids and decoded text");
  tokenizer->add_option("dir", dirs, "folders with tokenizer.json and cases.jsonl")->required();
  cria::trainer::LayoutsCheckOptions layouts_options;
  CLI::App* layouts = app.add_subcommand(
      "layouts", "a few training steps on every parallel layout, beside one rank");
  AddLayouts(layouts, &layouts_options);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (golden->parsed()) {
    return cria::trainer::RunGoldenCheck(dirs, *cria::model::PrecisionFromName(precision), stdout);
  }
  if (layouts->parsed()) {
    return cria::trainer::RunLayoutsCheck(layouts_options, {argv + 1, argv + argc}, stdout,
                                          layouts_options.json ? stderr : stdout);
  }
  return cria::trainer::RunTokenizerCheck(dirs);
}
