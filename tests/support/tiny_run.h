// A training run that takes milliseconds: a made-up language, 300 tokens, two layers of 32.
//
//   const std::string data = TinyData();
//   const TrainConfig config = TinyConfig(data);
//   const TinyOutcome outcome = RunTiny(config, {.out_dir = FreshDir("a")});
//   EXPECT_EQ(outcome.final.model, other.final.model);   // bytes
//
// Single-threaded.

#ifndef CRIA_TESTS_SUPPORT_TINY_RUN_H_
#define CRIA_TESTS_SUPPORT_TINY_RUN_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/ops.h"
#include "model/parallel/groups.h"
#include "trainer/config/train_config.h"
#include "trainer/loop/train_loop.h"

namespace cria {

// Sentences of a small grammar, different lengths, a newline after each.
std::string TinyText(int64_t num_sentences, uint64_t seed = 1);

// A prepared data folder of such text, made once a process: about 3,000 training tokens in
// documents of a few sentences, a vocabulary of 300.
const std::string& TinyData();

// The tiny job on that folder; checkpoint.every and eval_every are 0, checkpoints are all kept.
trainer::TrainConfig TinyConfig(const std::string& data_dir);

// The same as `--set` arguments of `cria train`.
std::vector<std::string> TinySettings(const std::string& data_dir);

// The files of a checkpoint's three parts.
struct CheckpointBytes {
  std::string model, optimizer, state;
  bool operator==(const CheckpointBytes&) const = default;
};
CheckpointBytes ReadCheckpointBytes(const std::string& dir);
std::string StepDir(const std::string& out_dir, int64_t step);

struct TinyOptions {
  std::string out_dir;
  std::string resume = {};    // a checkpoint's folder, or empty
  model::Ops* ops = nullptr;  // null: the CPU's
  const std::atomic<int>* stop = nullptr;
  const model::Groups* groups = nullptr;  // of a job of several ranks, each with its own call
};

struct TinyOutcome {
  Status status;
  trainer::TrainSummary summary;
  std::vector<std::string> metrics;  // metrics.jsonl by line; the clock stands, so speeds are null
  CheckpointBytes last;              // of the checkpoint in summary.checkpoint_dir
  std::vector<float> weights;        // in memory, at the end
};
TinyOutcome RunTiny(const trainer::TrainConfig& config, const TinyOptions& options);

std::vector<std::string> ReadLines(const std::string& path);

}  // namespace cria

#endif  // CRIA_TESTS_SUPPORT_TINY_RUN_H_
