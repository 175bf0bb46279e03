// A job's YAML (trainer/config/train_config.h).

#include "base/check.h"
#include "base/file.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/config/train_config.h"

namespace cria::fuzz {
namespace {

using trainer::LoadTrainConfig;
using trainer::TrainConfig;

Status Read(std::string_view input) {
  const std::string path = ScratchFile("job.yaml", input);
  const StatusOr<TrainConfig> config = LoadTrainConfig(path, {});
  if (!config.ok()) return NamesPlace(config.status(), path);
  // The resolved text reads back to the same.
  const std::string yaml = WriteTrainConfig(*config);
  const StatusOr<TrainConfig> again = LoadTrainConfig(ScratchFile("again.yaml", yaml), {});
  CRIA_CHECK(again.ok(), Message(again.status()));
  CRIA_CHECK(WriteTrainConfig(*again) == yaml);
  return OkStatus();
}

std::vector<std::string> Seeds() {
  return {"seed: 3\n",
          R"(precision: bf16
seed: 1
steps: 20
model:
  layers: 2
  dim: 32
  heads: 4
  kv_heads: 2
  ffn: 48
  vocab: 300
  max_positions: 64
  rope_theta: 10000
  tied_head: true
data: {inputs: ["a.txt", "b c.jsonl"], field: body, val_fraction: 0.1}
train:
  batch: 6
  micro_batch: 4
  seq: 32
  lr: 1.0e-3  # a comment
  schedule: wsd
checkpoint: {every: 5, keep: 2}
sample: {prompts: ["In the \"beginning\"", 'it''s'], tokens: 10}
tensorboard: false
)"};
}

std::vector<std::string> Regressions() {
  std::string bombs = "a: &a [x, x]\n";
  for (char c = 'b'; c < 'z'; ++c) {
    bombs += StrCat(c, ": &", c, " [*", static_cast<char>(c - 1), ", *", static_cast<char>(c - 1),
                    "]\n");
  }
  return {std::string(3000, '['), std::string(3000, '{'), bombs, "a: &a {b: *a}\n", "? ? ? ? a\n",
          "<<: *x\n", "seed: !!binary AAAA\n", "model: {<<: {layers: 2}}\n", "\xef\xbb\xbfseed: 1",
          std::string("\xff\xfe"
                      "s\0:\0",
                      6),
          "- - - - - - - -\n",
          // The error did not say whose preset it was.
          "model: {preset: 2}\n",
          // Found by libFuzzer: yaml-cpp 0.7 made documents of it until the memory was full.
          ",  -   x]\nb\xfe\xff\xff\xed\n"};
}

}  // namespace

const Target& TheTarget() {
  static const Target target = {.name = "job_config",
                                .read = Read,
                                .seeds = Seeds,
                                .regressions = Regressions,
                                .memory_factor = 2000};
  return target;
}

}  // namespace cria::fuzz
