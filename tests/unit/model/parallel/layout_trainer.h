// A few steps of training as one rank of any layout, without files: what tests of layouts compare.
//
//   const LayoutJob job = {.layout = {.tp = 2}, .batches = ...};
//   const LayoutOutcome alone = TrainAlone(job);
//   const LayoutOutcome all = TrainOnRanks(job);      // one thread a rank
//   EXPECT_EQ(all.weights, alone.weights);
//
// Fails the running test where a step fails, where ranks that hold the same number hold other bits,
// and where a number of the model is held by none.

#ifndef CRIA_TESTS_UNIT_MODEL_PARALLEL_LAYOUT_TRAINER_H_
#define CRIA_TESTS_UNIT_MODEL_PARALLEL_LAYOUT_TRAINER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/llama/config.h"
#include "model/llama/llama.h"
#include "model/parallel/mesh.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::model {

struct LayoutJob {
  Layout layout;
  LlamaConfig config;
  // The global batch of a step; dp divides its sequences, and micro_batch what each dp rank has.
  std::function<OwnedBatch(int step)> batch_of = nullptr;
  int steps = 3;
  int64_t micro_batch = 1;
  Precision precision = Precision::kFp32;
  bool invariant = false;
  bool fp8_gather = false;
  Recompute recompute = Recompute::kNone;
};

// By parameter and element of the whole tensor.
using LayoutWeights = std::map<std::string, std::map<int64_t, float>>;

struct LayoutOutcome {
  std::vector<double> losses = {}, norms = {};  // of each step, over all ranks
  LayoutWeights weights = {};                   // after the last
};

// The job on one rank, whatever its layout.
LayoutOutcome TrainAlone(const LayoutJob& job);
// On a thread a rank.
LayoutOutcome TrainOnRanks(const LayoutJob& job);

// ||got - want|| / ||want|| over all weights. Single numbers differ by more, since Adam divides
// small gradients by themselves, rounding errors and all.
double Difference(const LayoutWeights& got, const LayoutWeights& want);

}  // namespace cria::model

#endif  // CRIA_TESTS_UNIT_MODEL_PARALLEL_LAYOUT_TRAINER_H_
