// A tiny training state whose every value says which step and variant it is of, so that a mixture
// of two saves shows. For the tests of this folder.

#ifndef CRIA_TESTS_UNIT_TRAINER_CHECKPOINT_CHECKPOINT_FIXTURE_H_
#define CRIA_TESTS_UNIT_TRAINER_CHECKPOINT_CHECKPOINT_FIXTURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria::trainer {

// Holds the values that the tensors point into.
struct TinyRun {
  explicit TinyRun(int64_t step, int variant = 0);

  CheckpointState state;
  std::vector<float> weight_23;   // 2 x 3
  std::vector<float> norm_3;      // 3
  std::vector<float> moments_18;  // of both, first and second
  std::vector<float> amax_history_4;

  CheckpointTensors Tensors() const;
};

// An empty folder below TEST_TMPDIR.
std::string FreshFolder(const std::string& name);

// Saves TinyRun(step, variant).
Status SaveTiny(const std::string& checkpoints_dir, int64_t step, int variant = 0);

// OK when the checkpoint loads and all of its values are those of one save of `its` step; the
// variant goes to *variant (may be null).
Status CheckTiny(const std::string& dir, int* variant = nullptr);

// Overwrites in place, as a failing disk would.
void FlipByte(const std::string& path, size_t offset);

}  // namespace cria::trainer

#endif  // CRIA_TESTS_UNIT_TRAINER_CHECKPOINT_CHECKPOINT_FIXTURE_H_
