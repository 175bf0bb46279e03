// What tests of the Llama share: small configurations, batches that own their memory, a model with
// its backend, and a model's loss in double, composed of tests/unit/model/reference.h.
//
//   TestModel m(TinyConfig(), {.precision = Precision::kBf16}, /*seed=*/1);
//   const OwnedBatch batch = RandomBatch(m.config(), 2, 16, /*seed=*/7);
//   const LossSum loss = m->ForwardBackward(batch.view(), 1.0f / 32);
//   m.gradients();   // a copy
//
// Single-threaded.

#ifndef CRIA_TESTS_UNIT_MODEL_LLAMA_TINY_MODEL_H_
#define CRIA_TESTS_UNIT_MODEL_LLAMA_TINY_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/llama/llama.h"
#include "model/ops.h"

namespace cria::model {

// Two layers, four heads of six over two kv heads (24 wide: nothing is a multiple of a vector),
// vocabulary 37, tied.
LlamaConfig TinyConfig();
// Sizes over one tile of everything: 160 wide, ffn 272, vocabulary 131, one kv head, untied.
LlamaConfig SmallConfig();

struct OwnedBatch {
  int64_t batch = 0, time = 0;
  std::vector<int32_t> tokens, targets, positions, doc_start;

  // Valid as long as this lives and is not changed.
  TokenBatch view() const;
  // The sequences [begin, end) alone.
  OwnedBatch Sequences(int64_t begin, int64_t end) const;
  int64_t num_valid() const;
};

// Random tokens and targets; documents of `document` tokens with restarting positions (0: one
// document a sequence); about one target in `masked` is -100 (0: none).
OwnedBatch RandomBatch(const LlamaConfig& config, int64_t batch, int64_t time, uint64_t seed,
                       int64_t document = 0, int64_t masked = 0);

// A model with initial weights, multiplied by `scale` so that a fresh model's tiny logits don't
// hide errors.
class TestModel {
 public:
  TestModel(const LlamaConfig& config, LlamaOptions options, uint64_t seed = 1, float scale = 8);

  Llama* operator->() { return &model_; }
  Llama& operator*() { return model_; }
  const LlamaConfig& config() const { return model_.config(); }
  Ops* ops() { return ops_.get(); }

  std::vector<float> weights() const;
  std::vector<float> gradients() const;
  void SetWeights(const std::vector<float>& values);
  // One parameter's elements.
  float* WeightsOf(const std::string& name);
  std::vector<float> GradientOf(const std::string& name) const;
  std::vector<float> Logits(const OwnedBatch& batch);

  // Gradients from zero of the mean over the batch's counted tokens.
  LossSum Step(const OwnedBatch& batch);

 private:
  const std::unique_ptr<Ops> ops_;
  Llama model_;
};

// The sum over counted tokens of loss + z_loss * lse^2, in double.
double ReferenceLoss(const LlamaConfig& config, const std::vector<double>& weights,
                     const OwnedBatch& batch, double z_loss = 0);
// The logits [R, V].
std::vector<double> ReferenceLogits(const LlamaConfig& config, const std::vector<double>& weights,
                                    const OwnedBatch& batch);

// max |got - want| / max |want|; infinite for different sizes or a NaN.
double RelativeError(const std::vector<float>& got, const std::vector<float>& want);

// The six precisions, for INSTANTIATE_TEST_SUITE_P, and their names.
std::vector<Precision> AllPrecisions();

}  // namespace cria::model

#endif  // CRIA_TESTS_UNIT_MODEL_LLAMA_TINY_MODEL_H_
