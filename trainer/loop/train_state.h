// A run's state to and from checkpoints: the model's weights, the optimizer, FP8 scales and the
// cursor.
//
// Called by the train loop alone, on all ranks. Checkpoints are the same whatever the layout: each
// rank writes the elements that it counts (ParameterParts::counted) of the parameters that are not
// counted elsewhere, and reads what it holds. Every element of every tensor is written exactly
// once, and every element of a rank's buffers read exactly once, or the call fails. Saving reads
// the tensors where they lie; restoring checks every name before the first byte changes.
// Single-threaded.

#ifndef CRIA_TRAINER_LOOP_TRAIN_STATE_H_
#define CRIA_TRAINER_LOOP_TRAIN_STATE_H_

#include <string>

#include "base/status.h"
#include "model/llama/llama.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/optimizer/adamw.h"

namespace cria::trainer {

// Where a run stands: after `step` steps.
struct Cursor {
  int64_t step = 0;
  int64_t samples = 0;  // sequences taken from the stream
  int64_t tokens = 0;
  int64_t bad_steps_in_row = 0;
  int64_t data_fingerprint = 0;  // of the training split, 53 bits
};

Status SaveTrainState(const std::string& checkpoints_dir, const Cursor& cursor, uint64_t seed,
                      const std::string& config_yaml, model::Llama* model, const AdamW& optimizer);

// Fills model and optimizer from a verified checkpoint; returns where it stands. An error of one
// rank is every rank's.
StatusOr<Cursor> RestoreTrainState(const LoadedCheckpoint& checkpoint, model::Llama* model,
                                   AdamW* optimizer);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_TRAIN_STATE_H_
