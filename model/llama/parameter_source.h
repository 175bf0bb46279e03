// ParameterSource: the weights that a model has in memory, as a WeightSource.
//
// For samples at the end of a training run and for tests of the decoder.
//
//   const ParameterSource source(model.layout(), model.weights(), "the model in training");
//   LlamaDecoder::Load(config, options, source, ops);
//
// Layout and weights must outlive it. Thread-safe while nobody changes the weights.

#ifndef CRIA_MODEL_LLAMA_PARAMETER_SOURCE_H_
#define CRIA_MODEL_LLAMA_PARAMETER_SOURCE_H_

#include <string>
#include <vector>

#include "model/io/weight_source.h"
#include "model/llama/parameters.h"
#include "model/tensor.h"

namespace cria::model {

class ParameterSource final : public WeightSource {
 public:
  // `weights` is fp32 [layout.num_elements()]; `name` is for messages.
  ParameterSource(const ParameterLayout& layout, const Tensor& weights, const std::string& name);

  const std::string& path() const override { return name_; }
  const std::vector<WeightInfo>& weights() const override { return infos_; }
  Status ReadRows(const WeightInfo& weight, int64_t begin, int64_t end, StDtype dtype,
                  void* to) const override;

 private:
  const ParameterLayout& layout_;
  const Tensor values_;
  const std::string name_;
  std::vector<WeightInfo> infos_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_PARAMETER_SOURCE_H_
