// A real decoder whose logits are a table: what follows a token depends on that token alone.
//
//   const MarkovModel model([](int32_t from, int32_t to) { return to == from + 1 ? 9.f : 0.f; });
//   auto decoder = model.NewDecoder({.max_sequences = 2});
//
// One layer whose matrices are zero; the embedding is the identity, so the head's columns are the
// table's rows. Its vocabulary is ByteTokenizer's. Single-threaded; outlives its decoders.

#ifndef CRIA_TESTS_UNIT_TRAINER_GENERATE_MARKOV_MODEL_H_
#define CRIA_TESTS_UNIT_TRAINER_GENERATE_MARKOV_MODEL_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/llama/decoder.h"

namespace cria::trainer {

// Weights in memory, all fp32.
class MemoryWeights : public model::WeightSource {
 public:
  // Zeros where `values` is empty.
  void Add(const std::string& name, std::vector<int64_t> shape, std::vector<float> values);

  const std::string& path() const override { return path_; }
  const std::vector<model::WeightInfo>& weights() const override { return weights_; }
  Status ReadRows(const model::WeightInfo& weight, int64_t begin, int64_t end, model::StDtype dtype,
                  void* to) const override;
  // fp32, of weight.shape.
  const std::vector<float>& values(const model::WeightInfo& weight) const {
    return values_.at(weight.name);
  }

 private:
  const std::string path_ = "memory";
  std::vector<model::WeightInfo> weights_;
  std::map<std::string, std::vector<float>> values_;
};

class MarkovModel {
 public:
  explicit MarkovModel(const std::function<float(int32_t from, int32_t to)>& logit);

  // After this token, no logit is finite.
  void Poison(int32_t token);
  const model::LlamaConfig& config() const { return config_; }
  MemoryWeights Weights() const;
  std::unique_ptr<model::LlamaDecoder> NewDecoder(const model::DecoderOptions& options) const;

 private:
  model::LlamaConfig config_;
  std::vector<float> embedding_, head_;
  std::unique_ptr<model::Ops> ops_;
};

// 'a' to 'y' are followed by the next letter, 'z' by 'a'; ids outside the alphabet by 'a'.
float AlphabetLogit(int32_t from, int32_t to);

}  // namespace cria::trainer

#endif  // CRIA_TESTS_UNIT_TRAINER_GENERATE_MARKOV_MODEL_H_
