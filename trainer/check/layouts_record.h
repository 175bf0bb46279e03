// What a training run left in its folder, and how far two runs are apart.
//
//   CRIA_ASSIGN_OR_RETURN(const RunRecord one, ReadRunRecord("one", /*steps=*/3));
//   const RunDifference difference = Compare(run, one);
//   difference.loss       // max over steps of |a - b| / |b|
//   difference.grad_norm  // the same
//   difference.gradients  // max over tensors of ||a - b|| / ||b||, L2, of the first step
//   difference.weights    // the same, after the last step
//
// Thread-safe: values and functions of files.

#ifndef CRIA_TRAINER_CHECK_LAYOUTS_RECORD_H_
#define CRIA_TRAINER_CHECK_LAYOUTS_RECORD_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace cria::trainer {

struct RunRecord {
  std::vector<double> losses, grad_norms;  // by step
  // Whole tensors: of the first step, by AdamW's first moment, times one factor for all; and of the
  // last checkpoint.
  std::map<std::string, std::vector<float>> gradients = {};
  std::map<std::string, std::vector<float>> weights = {};
};

// Reads metrics.jsonl, checkpoints/step_1 and checkpoints/step_<steps> of the folder. Errors as
// theirs; DataLoss for another number of steps, Internal where a step was not finite.
StatusOr<RunRecord> ReadRunRecord(const std::string& out_dir, int64_t steps);

struct RunDifference {
  double loss = 0, grad_norm = 0, gradients = 0, weights = 0;
  std::string worst_gradient = {}, worst_tensor = {};  // of `gradients` and of `weights`
  bool bit_equal = true;  // all of losses, norms, gradients and weights
};

// `run` beside `reference`; infinite where the one has no such step or tensor, or another size.
RunDifference Compare(const RunRecord& run, const RunRecord& reference);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECK_LAYOUTS_RECORD_H_
