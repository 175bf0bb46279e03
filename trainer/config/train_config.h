// TrainConfig: everything that a training job is made of, from YAML.
//
//   CRIA_ASSIGN_OR_RETURN(TrainConfig config,
//                         LoadTrainConfig("configs/jobs/default.yaml", {"train.lr=1e-3"}));
//
//   precision: fp32            model: {preset: toy, layers: 8}     train: {batch: 32, lr: 1.0e-3}
//   seed: 1                    data: {path: my_tokens}             checkpoint: {every: 100, keep:
//   3} steps: 1000
//
// Every key and its default is in the lists of fields in train_config.cc; the resolved file is
// written next to every run. An unknown key, a wrong type or a value out of range is an error with
// file, line and key. `model.preset` names a file in configs/models, whose keys are defaults for
// the section. Fixed names that others may count on: precision, seed, steps, model.layers,
// model.heads, data.*, train.*, parallel.*, checkpoint.every, checkpoint.keep. Thread-safe as
// values are.

#ifndef CRIA_TRAINER_CONFIG_TRAIN_CONFIG_H_
#define CRIA_TRAINER_CONFIG_TRAIN_CONFIG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/llama/config.h"
#include "model/llama/llama.h"
#include "model/parallel/mesh.h"
#include "model/precision.h"
#include "trainer/optimizer/adamw.h"
#include "trainer/optimizer/schedule.h"

namespace cria::trainer {

// How the job is divided over its ranks (model/parallel/mesh.h).
struct ParallelConfig {
  int64_t tp = 1, cp = 1, pp = 1;
  int64_t dp = 0;              // 0: what tp, cp and pp leave of the job's ranks
  std::string shard = "none";  // none, optimizer, gradients, weights
  int64_t pp_chunks = 1;
  int64_t pp_group = 0;  // 0: pp
  bool pp_short_ends = false;
  bool fp8_gather = false;  // sharded weights travel in 8 bits (fp8_tensorwise)
};

struct DataConfig {
  std::string path;                 // a prepared folder; empty: made from `inputs`
  std::vector<std::string> inputs;  // text to prepare; empty: the King James Bible
  std::string field = "text";       // of JSONL inputs
  int64_t vocab = 4096;             // of the tokenizer that is trained on the inputs
  double val_fraction = 0.02;       // of the documents
  bool shuffle = true;
};

struct TrainSection {
  int64_t batch = 32;       // sequences of a step
  int64_t micro_batch = 8;  // sequences in memory at once; a step accumulates over them
  int64_t seq = 256;        // tokens of a sequence
  std::vector<int64_t> ramp_batch, ramp_until;
  double lr = 1e-3;
  double min_lr_ratio = 0.1;
  int64_t warmup = 50;
  std::string schedule = "cosine";
  double decay_fraction = 0.2;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1;
  double z_loss = 0;
  std::string recompute = "none";
  int64_t token_grain = 0;    // of invariant numerics: tokens summed as one; 0: seq / 16
  int64_t eval_every = 100;   // steps; 0: at the end only
  int64_t eval_samples = 64;  // sequences of the validation split, at most
  int64_t max_bad_steps = 5;  // non-finite steps in a row before the run stops
  double peak_gflops = 0;     // what MFU is a share of; 0: a GEMM rate measured at the start
};

struct CheckpointConfig {
  int64_t every = 200;  // steps; 0: at the end only
  int64_t keep = 3;     // newest kept; 0: all
};

struct SampleConfig {
  std::vector<std::string> prompts = {"In the beginning", "And the LORD said unto", "Blessed are"};
  int64_t tokens = 60;
  double temperature = 0.7;  // 0: greedy
  int64_t top_k = 40;        // 0: all
};

struct TrainConfig {
  std::string init;  // a model whose weights a new run starts from; empty: random ones
  std::string precision = "fp32";
  // "invariant": the same bits in every layout, at a cost; fp32 only.
  std::string numerics = "default";
  int64_t seed = 1;
  int64_t steps = 1000;
  std::string model_preset;
  model::LlamaConfig model;
  DataConfig data;
  TrainSection train;
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  SampleConfig sample;
  bool tensorboard = true;

  model::Precision Precision() const { return *model::PrecisionFromName(precision); }
  bool invariant() const { return numerics == "invariant"; }
  int64_t TokenGrain() const;
  // As the job writes it: a dp of 0 counts as 1. See ResolveLayout.
  model::Layout Layout() const;
  model::LlamaOptions LlamaOptions() const;
  AdamWOptions AdamW() const;
  LearningRateSchedule LearningRate() const;
  BatchSchedule Batches() const;
};

// The mesh of the job on so many ranks. A dp that the job does not name is what the other axes
// leave. InvalidArgument naming all sizes where they don't make `world_size`, and what CheckLayout
// says.
StatusOr<model::Layout> ResolveLayout(const TrainConfig& config, int world_size);

// Opens the model that `init` names and gives its sizes.
using OpenInit = std::function<StatusOr<model::LlamaConfig>(const std::string& path)>;

// `file`: a path, or a name in configs/jobs. `overrides`: "train.lr=1e-3". InvalidArgument with the
// place. Where the job has an `init` and `open_init` is given, the model section is what that says;
// keys of the section that the job gives all the same must agree (CheckInitModel).
StatusOr<TrainConfig> LoadTrainConfig(const std::string& file,
                                      const std::vector<std::string>& overrides,
                                      const OpenInit& open_init = nullptr);

// InvalidArgument naming the first key that differs, with both values.
Status CheckInitModel(const model::LlamaConfig& job, const model::LlamaConfig& init,
                      const std::string& init_path);

// A resolved configuration's text, as a checkpoint keeps it; `name` stands for the file in
// messages.
StatusOr<TrainConfig> ParseTrainConfig(const std::string& text, const std::string& name);

// The resolved configuration as YAML: reading it gives an equal TrainConfig.
std::string WriteTrainConfig(const TrainConfig& config);

// A file of configs/<kind>/<name>[.yaml], or `name` itself where it is a path: beside the program
// (its runfiles), else below the working directory. NotFound, naming what was tried.
StatusOr<std::string> FindConfig(const std::string& kind, const std::string& name);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CONFIG_TRAIN_CONFIG_H_
