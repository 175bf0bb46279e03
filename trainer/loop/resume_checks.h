// What keeps a resumed run honest: the same model, the same data, one line of checkpoints.
//
// Called by the train loop. Why each is there: runs that went on from another model or on other
// data without an error are in every trainer's bug tracker, and their losses look fine.
// Functions of their arguments and the files; thread-compatible.

#ifndef CRIA_TRAINER_LOOP_RESUME_CHECKS_H_
#define CRIA_TRAINER_LOOP_RESUME_CHECKS_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "trainer/data/manifest.h"

namespace cria::trainer {

// What the stream of batches depends on besides seed, length and batch: the training split's tokens
// in their order, and whether it is shuffled. 53 bits, so that a double holds it.
int64_t DataFingerprint(const Manifest& manifest, bool shuffle);

// Compares the model sections of two resolved configurations line by line: shapes alone don't tell
// another number of heads, another rotary base or another epsilon. InvalidArgument naming `where`
// and the first line that differs.
Status CheckSameModel(const std::string& checkpoint_yaml, const std::string& job_yaml,
                      const std::string& where);

// Moves OUT/checkpoints/step_N with N > step to OUT/checkpoints_replaced (a number follows the name
// where it is taken), the newest first, and says so. A run that goes on from an older checkpoint,
// or over damaged ones, leaves another branch behind: left in place, its higher steps would be what
// `--resume auto` takes next. Nothing is lost, and a kill in between leaves a run like before.
Status SetAsideNewerCheckpoints(const std::string& out_dir, int64_t step);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_RESUME_CHECKS_H_
