// `cria check golden`: a model against what PyTorch and transformers computed for it.
//
// A folder holds config.json, model.safetensors, io.safetensors, gradients.safetensors,
// gradients_masked.safetensors, weights_after_10_steps.safetensors and expected.json (the README of
// the test data says what each contains). Compared are logits, losses, gradient norms, every
// gradient, masked labels, positions beyond 1,000, packed documents, ten AdamW steps and a greedy
// continuation. One line a quantity with its relative error by norm and its limit. Single-threaded.

#ifndef CRIA_TRAINER_CHECK_GOLDEN_CHECK_H_
#define CRIA_TRAINER_CHECK_GOLDEN_CHECK_H_

#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/precision.h"

namespace cria::trainer {

struct GoldenQuantity {
  std::string name;  // "gradients: model.norm.weight"
  double error = 0;
  double limit = 0;
  bool ok() const { return error <= limit; }  // false for NaN
};

// All quantities of one folder; an error when its files can't be read or don't fit together.
StatusOr<std::vector<GoldenQuantity>> CheckGolden(const std::string& dir,
                                                  model::Precision precision);

// Prints the quantities of each folder to `out`; returns 0 when all are within limits, 1 when one
// is not, 2 when a folder can't be read.
int RunGoldenCheck(const std::vector<std::string>& dirs, model::Precision precision,
                   std::FILE* out);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECK_GOLDEN_CHECK_H_
