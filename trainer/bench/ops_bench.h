// `cria bench ops`: where the time of a training step goes, operation by operation.
//
// Verified first: the timed step has the loss and gradient norm of the plain one. Each matrix
// product stands beside oneDNN's speed at its very shape, each other operation beside the machine's
// memory speed, measured in turns with the steps. Then what parts of a job cost beside the whole:
// attention in stretches, products as chains. Single-threaded.

#ifndef CRIA_TRAINER_BENCH_OPS_BENCH_H_
#define CRIA_TRAINER_BENCH_OPS_BENCH_H_

#include <cstdio>

#include "base/status.h"
#include "model/precision.h"

namespace cria::trainer {

struct OpsBenchOptions {
  model::Precision precision = model::Precision::kFp32;
  int threads = 0;  // 0: as many as NumThreads()
  int reps = 5;
  bool cpu_time = false;  // time of the process alone: a busy machine, one thread
  bool tiny = false;      // a model for testing the benchmark itself
  bool json = false;      // the result as JSON on `out`, everything else on `notes`
};

// Writes the result to `out` and progress to `notes`. Internal when the verification fails.
Status RunOpsBench(const OpsBenchOptions& options, std::FILE* out, std::FILE* notes);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_OPS_BENCH_H_
