// What a run's model writes, for the last lines of `cria train`.
//
//   CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
//                         SampleRun(checkpoint_dir, tokenizer, {.prompts = {"In the beginning"}},
//                                   ops.get()));
//
// The weights are read from the checkpoint, so that the trainer's model may be gone by then.
// Single-threaded; threads inside.

#ifndef CRIA_TRAINER_GENERATE_RUN_SAMPLES_H_
#define CRIA_TRAINER_GENERATE_RUN_SAMPLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/ops.h"
#include "trainer/generate/sampling.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

struct RunSampleOptions {
  std::vector<std::string> prompts = {};
  SamplingOptions sampling = {};
  int64_t max_tokens = 60;      // of a continuation
  int64_t max_positions = 256;  // of a prompt and its continuation
};

// Each prompt with its continuation, which ends at an end-of-text token, at max_tokens or at
// max_positions; a prompt that is longer than that alone, as it is. Errors of opening and
// generating.
StatusOr<std::vector<std::string>> SampleRun(const std::string& checkpoint_dir,
                                             const Tokenizer& tokenizer,
                                             const RunSampleOptions& options, model::Ops* ops);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_GENERATE_RUN_SAMPLES_H_
