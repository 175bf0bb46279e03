// Memory of a job: planned before anything is allocated, measured while it runs.

#ifndef CRIA_TRAINER_LOOP_MEMORY_H_
#define CRIA_TRAINER_LOOP_MEMORY_H_

#include <cstdint>
#include <string>

#include "model/llama/llama.h"
#include "trainer/config/train_config.h"

namespace cria::trainer {

struct JobPlan {
  model::MemoryPlan model;
  int64_t optimizer = 0;
  int64_t batches = 0;  // token ids and their document structure
  int64_t runtime = 0;  // the process before the model: libraries, threads, tokenizer; measured now
  int64_t num_parameters = 0;
  model::FlopsPerToken flops;
  int64_t total() const { return model.total() + optimizer + batches + runtime; }
};

// `runtime` is what the calling process holds now, plus what oneDNN generates later.
JobPlan PlanJob(const TrainConfig& config, const model::Ops& ops);

// The plan as a table for people.
std::string DescribePlan(const TrainConfig& config, const JobPlan& plan);

// Private memory of this process that is in use (RssAnon of /proc/self/status), in bytes; 0 if
// unknown.
int64_t UsedMemoryBytes();

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_MEMORY_H_
