// The training step that the benchmarks time: one model, one fixed batch, AdamW.
//
//   BenchBatch batch(DefaultBenchShape());
//   BenchStep step(DefaultBenchShape(), Precision::kBf16, ops.get(), &batch);
//   step.Gradients();   // loss and gradient norm on the weights as they are
//   step.Run();         // zero, forward, backward, norm, AdamW, compute copy
//
// Weights and tokens are a function of the shape alone, so every precision and every peer starts
// from the same. Single-threaded.

#ifndef CRIA_TRAINER_BENCH_BENCH_STEP_H_
#define CRIA_TRAINER_BENCH_BENCH_STEP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/llama/llama.h"
#include "model/ops.h"
#include "trainer/optimizer/adamw.h"

namespace cria::trainer {

struct BenchShape {
  model::LlamaConfig config;
  int64_t batch = 8;
  int64_t time = 256;

  int64_t tokens() const { return batch * time; }
};

// dim 288, 6 layers, 6 heads, ffn 768, vocabulary 4,096, tied head; 8 sequences of 256 tokens.
BenchShape DefaultBenchShape();
// The same in small, for a test of the benchmarks themselves.
BenchShape TinyBenchShape();

// "dim 288, 6 layers, ...".
std::string DescribeShape(const BenchShape& shape);

// Random tokens; the target is the next one; a row is one document.
class BenchBatch {
 public:
  explicit BenchBatch(const BenchShape& shape);

  model::TokenBatch View();

 private:
  const int64_t batch_, time_;
  std::vector<int32_t> tokens_, targets_, positions_, doc_start_;
};

struct StepResult {
  double loss = 0;  // mean over tokens
  double grad_norm = 0;
};

class BenchStep {
 public:
  static constexpr double kLearningRate = 1e-4;

  // `ops` and `batch` stay the caller's and must outlive this.
  BenchStep(const BenchShape& shape, model::Precision precision, model::Ops* ops,
            BenchBatch* batch);

  // Loss and gradients of the batch; weights stay.
  StepResult Gradients();
  // A whole step.
  StepResult Run();

  const model::Llama& model() const { return model_; }

  // Weights, tokens, targets and sizes as safetensors, for a peer (tools/peers/train_peer.py).
  Status WriteFile(const std::string& path);

 private:
  const BenchShape shape_;
  BenchBatch* const batch_;
  model::Llama model_;
  AdamW optimizer_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_BENCH_STEP_H_
