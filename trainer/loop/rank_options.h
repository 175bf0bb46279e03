// What one rank's model is made with: its place in the mesh, its largest micro-batch, how many
// micro-batches its chunks hold at once.
//
//   CRIA_ASSIGN_OR_RETURN(const model::Layout layout, ResolveLayout(config, world->size()));
//   model::Llama model(config.model, RankOptions(config, layout, world->rank()), ops, &groups);
//
// Thread-safe: pure functions.

#ifndef CRIA_TRAINER_LOOP_RANK_OPTIONS_H_
#define CRIA_TRAINER_LOOP_RANK_OPTIONS_H_

#include <cstdint>
#include <vector>

#include "model/llama/llama.h"
#include "model/parallel/mesh.h"
#include "trainer/config/train_config.h"

namespace cria::trainer {

// Sequences of a step: all sizes that a run goes through, smaller ones first in a ramp.
std::vector<int64_t> BatchSizes(const TrainConfig& config);

// For any step of the run.
model::LlamaOptions RankOptions(const TrainConfig& config, const model::Layout& layout, int rank);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_RANK_OPTIONS_H_
