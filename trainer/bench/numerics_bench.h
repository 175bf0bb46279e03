// `cria bench numerics`: does a precision learn as well as fp32 does?
//
// The same model, seed and batches are trained once for each precision; each run's validation loss
// stands beside fp32's. A run is a whole TrainLoop in a temporary folder. Single-threaded.

#ifndef CRIA_TRAINER_BENCH_NUMERICS_BENCH_H_
#define CRIA_TRAINER_BENCH_NUMERICS_BENCH_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/precision.h"

namespace cria::trainer {

struct NumericsBenchOptions {
  std::string config = "numerics";           // a job's file or name
  std::vector<std::string> set;              // key=value over it
  std::vector<model::Precision> precisions;  // fp32 runs first in any case
  int64_t steps = 500;
  double limit = 0.01;  // of (loss - fp32's) / fp32's, above
  bool json = false;    // the result as JSON on `out`, everything else on `notes`
};

// Writes a line a precision to `out`. Internal when one ends more than `limit` above fp32.
Status RunNumericsBench(const NumericsBenchOptions& options, std::FILE* out, std::FILE* notes);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_NUMERICS_BENCH_H_
