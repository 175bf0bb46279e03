// cria check golden|tokenizer DIR...: numerics against what other programs computed.

#include <cstdio>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "model/precision.h"
#include "trainer/check/golden_check.h"
#include "trainer/check/tokenizer_check.h"

int main(int argc, char** argv) {
  CLI::App app("Compares our results with those of PyTorch, transformers and tokenizers.",
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

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (golden->parsed()) {
    return cria::trainer::RunGoldenCheck(dirs, *cria::model::PrecisionFromName(precision), stdout);
  }
  return cria::trainer::RunTokenizerCheck(dirs);
}
