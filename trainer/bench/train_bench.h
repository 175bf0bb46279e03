// `cria bench train`: tokens a second of our training step, beside oneDNN's GEMM speed and PyTorch.
//
// Verified before timed: every precision gives the same bits with each number of threads and a loss
// near fp32's; a peer's loss and gradient norm on the same weights agree with ours. Then all
// variants and the GEMM baselines run in turns, so that what disturbs the machine disturbs all;
// ratios are medians of ratios within a round. Single-threaded.

#ifndef CRIA_TRAINER_BENCH_TRAIN_BENCH_H_
#define CRIA_TRAINER_BENCH_TRAIN_BENCH_H_

#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/precision.h"

namespace cria::trainer {

struct TrainBenchOptions {
  std::vector<model::Precision> precisions = {model::Precision::kFp32, model::Precision::kBf16,
                                              model::Precision::kFp8Rowwise};
  std::vector<int> threads = {1, 2};
  int reps = 7;
  std::string peer;   // a Python interpreter with PyTorch; empty: none
  bool tiny = false;  // a model for testing the benchmark itself
  bool json = false;  // the result as JSON on `out`, everything else on `notes`
};

// Writes the result to `out` and progress to `notes`. Internal when a verification fails.
Status RunTrainBench(const TrainBenchOptions& options, std::FILE* out, std::FILE* notes);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_TRAIN_BENCH_H_
