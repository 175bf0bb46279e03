// Memory of a job: planned rank by rank before anything is allocated, measured while it runs.
//
//   const JobPlan plan = PlanJob(config, layout, *ops);       // any number of ranks
//   std::printf("%s", DescribePlan(config, plan).c_str());
//   const RankPlan mine = PlanRank(config, layout, rank, *ops);
//   ... the run ...
//   CRIA_ASSIGN_OR_RETURN(const MemoryUse most, LargestUse(mine.total() + plan.runtime, world));
//
// Thread-safe, but for what a communicator is. The plan of 405B on 16,384 ranks takes some 10 ms.

#ifndef CRIA_TRAINER_LOOP_MEMORY_H_
#define CRIA_TRAINER_LOOP_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "model/llama/llama.h"
#include "model/parallel/mesh.h"
#include "trainer/config/train_config.h"

namespace cria::trainer {

// Bytes of one rank, where no other unit is named.
struct RankPlan {
  int rank = 0;
  int64_t num_layers = 0;
  int64_t num_parameters = 0;  // that the rank computes with
  int max_in_flight = 0;       // micro-batches in chunks that wait for their backward pass
  model::MemoryPlan model = {};
  int64_t optimizer = 0;
  int64_t batches = 0;  // token ids and their document structure
  int64_t total() const { return model.total() + optimizer + batches; }
};

struct JobPlan {
  model::Layout layout = {};
  std::vector<RankPlan> stages = {};  // of each stage of the pipeline, the rank that needs most
  int num_micro_batches = 0;          // of a rank in a step, at full batch
  double bubble = 0;                  // of a step on paper: idle share over work
  int64_t num_parameters = 0;         // of the model
  model::FlopsPerToken flops = {};
  // The process before the model: libraries, threads, tokenizer; measured now, plus what oneDNN
  // generates later, and what groups of tp, cp and pp move activations through.
  int64_t runtime = 0;

  const RankPlan& largest() const;
  int64_t total() const { return largest().total() + runtime; }
};

// The layout has passed ResolveLayout.
RankPlan PlanRank(const TrainConfig& config, const model::Layout& layout, int rank,
                  const model::Ops& ops);
JobPlan PlanJob(const TrainConfig& config, const model::Layout& layout, const model::Ops& ops);

// The plan as a table for people.
std::string DescribePlan(const TrainConfig& config, const JobPlan& plan);

// Memory of this process that is in use, in bytes: private memory (RssAnon of /proc/self/status)
// and its share of the segments that ranks of this host share (Pss_Shmem of
// /proc/self/smaps_rollup: a page's size over the processes that have touched it). 0 if unknown.
int64_t UsedMemoryBytes();

struct MemoryUse {
  int rank = 0;
  int64_t planned = 0, used = 0;
};

// The rank of the job that uses most, and what was planned for it. All ranks call it, each with its
// own plan, while all still hold what they use. `world` null: one rank. Errors are the
// communicator's.
StatusOr<MemoryUse> LargestUse(int64_t planned, comm::Communicator* world);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_MEMORY_H_
