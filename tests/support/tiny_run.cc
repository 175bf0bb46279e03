#include "tests/support/tiny_run.h"

#include <array>
#include <memory>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "model/cpu/cpu_ops.h"
#include "tests/support/process.h"
#include "trainer/data/prepare.h"
#include "trainer/data/token_dataset.h"

namespace cria {

using trainer::TokenDataset;
using trainer::TrainConfig;
using trainer::TrainLoop;

std::string TinyText(int64_t num_sentences, uint64_t seed) {
  constexpr std::array kWho = {"the llama", "a small cria", "the old shepherd", "nobody", "she"};
  constexpr std::array kDoes = {"watches", "follows", "does not see", "waits for", "remembers"};
  constexpr std::array kWhat = {"the river",     "a cloud", "the long way home",
                                "another llama", "grass",   "the first snow of the year"};
  const Rng rng(seed, StreamOf("tiny text"));
  uint64_t draw = 0;
  const auto pick = [&](const auto& words) { return words[rng.Below(draw++, words.size())]; };
  std::string text;
  for (int64_t i = 0; i < num_sentences; ++i) {
    text += StrCat(pick(kWho), " ", pick(kDoes), " ", pick(kWhat));
    if (rng.Below(draw++, 3) == 0) text += StrCat(" and ", pick(kDoes), " ", pick(kWhat));
    text += rng.Below(draw++, 4) == 0 ? ".\n\n" : ".\n";
  }
  return text;
}

const std::string& TinyData() {
  static const std::string* const dir = [] {
    const std::string root = FreshDir("tiny_data");
    const std::string input = JoinPath(root, "text.txt");
    CRIA_CHECK(WriteFileAtomic(input, TinyText(160)).ok());
    trainer::PrepareOptions options;
    options.source.inputs = {input};
    options.source.split_on = "\n\n";
    options.out_dir = JoinPath(root, "prepared");
    options.vocab_size = 300;
    options.val_fraction = 0.1;
    const auto prepared = PrepareData(options);
    CRIA_CHECK(prepared.ok(), Message(prepared.status()));
    return new std::string(options.out_dir);
  }();
  return *dir;
}

std::vector<std::string> TinySettings(const std::string& data_dir) {
  std::vector<std::string> settings = {"model.layers=2",         "model.dim=32",
                                       "model.heads=4",          "model.kv_heads=2",
                                       "model.ffn=48",           "model.vocab=300",
                                       "model.max_positions=64", "model.rope_theta=10000",
                                       "model.tied_head=true",   "steps=10",
                                       "train.batch=6",          "train.micro_batch=4",
                                       "train.seq=32",           "train.lr=0.01",
                                       "train.warmup=3",         "train.eval_every=0",
                                       "train.peak_gflops=1",    "checkpoint.every=0",
                                       "checkpoint.keep=0",      "sample.prompts=[]",
                                       "tensorboard=false"};
  if (!data_dir.empty()) settings.push_back("data.path=" + data_dir);
  return settings;
}

TrainConfig TinyConfig(const std::string& data_dir) {
  const std::string file = JoinPath(FreshDir("tiny_config"), "tiny.yaml");
  CRIA_CHECK(WriteFileAtomic(file, "seed: 1\n").ok());
  const StatusOr<TrainConfig> config = trainer::LoadTrainConfig(file, TinySettings(data_dir));
  CRIA_CHECK(config.ok(), Message(config.status()));
  return *config;
}

CheckpointBytes ReadCheckpointBytes(const std::string& dir) {
  const auto read = [&](const char* name) {
    const StatusOr<std::string> bytes = ReadFile(JoinPath(dir, name));
    return bytes.ok() ? *bytes : StrCat("unreadable: ", Message(bytes.status()));
  };
  return {read("model.safetensors"), read("optimizer.safetensors"), read("state.safetensors")};
}

std::string StepDir(const std::string& out_dir, int64_t step) {
  return JoinPath(out_dir, StrCat("checkpoints/step_", step));
}

TinyOutcome RunTiny(const TrainConfig& config, const TinyOptions& options) {
  const std::unique_ptr<model::Ops> cpu = model::cpu::NewCpuOps();
  FakeClock clock;
  TinyOutcome outcome;
  const StatusOr<TokenDataset> train = TokenDataset::Open(config.data.path, "train");
  const StatusOr<TokenDataset> val = TokenDataset::Open(config.data.path, "val");
  CRIA_CHECK(train.ok() && val.ok(), Message(train.status()), Message(val.status()));
  TrainLoop loop(config, {.out_dir = options.out_dir,
                          .ops = options.ops != nullptr ? options.ops : cpu.get(),
                          .clock = &clock,
                          .stop = options.stop,
                          .groups = options.groups});
  outcome.status = loop.Open(&*train, &*val);
  if (outcome.status.ok() && !options.resume.empty()) outcome.status = loop.Resume(options.resume);
  if (outcome.status.ok()) {
    const StatusOr<trainer::TrainSummary> summary = loop.Run();
    outcome.status = summary.status();
    if (summary.ok()) outcome.summary = *summary;
  }
  outcome.metrics = ReadLines(JoinPath(options.out_dir, "metrics.jsonl"));
  outcome.last = ReadCheckpointBytes(outcome.summary.checkpoint_dir);
  const model::Tensor& weights = loop.model()->weights();
  outcome.weights.assign(weights.f32(), weights.f32() + weights.num_elements());
  return outcome;
}

std::vector<std::string> ReadLines(const std::string& path) {
  const StatusOr<std::string> text = ReadFile(path);
  std::vector<std::string> lines;
  if (!text.ok()) return lines;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = text->find('\n', begin);
    lines.push_back(text->substr(begin, end - begin));
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return lines;
}

}  // namespace cria
