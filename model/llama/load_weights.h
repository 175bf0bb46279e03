// Parameters from a source of weights, checked against a layout.
//
//   CRIA_ASSIGN_OR_RETURN(const auto source, SafetensorsSource::Open("Llama-3.2-1B"));
//   CRIA_RETURN_IF_ERROR(LoadWeights(*source, model.layout(), model.weights()));
//   model.WeightsChanged();
//
// Thread-compatible; threads inside.

#ifndef CRIA_MODEL_LLAMA_LOAD_WEIGHTS_H_
#define CRIA_MODEL_LLAMA_LOAD_WEIGHTS_H_

#include "base/status.h"
#include "model/io/weight_source.h"
#include "model/llama/parameters.h"
#include "model/tensor.h"

namespace cria::model {

// The source has each parameter of the layout in its shape, and nothing else: NotFound for a
// missing weight, InvalidArgument for a wrong shape, for a weight that the layout doesn't know, and
// for a head that is in the file of a model that ties it to the embedding and differs from that.
// Cost: names and shapes; the two matrices where there is such a head.
Status CheckWeights(const WeightSource& source, const ParameterLayout& layout);

// CheckWeights, then every parameter of the layout to its place in `values` (fp32,
// layout.num_elements()). Errors of CheckWeights before the first byte changes; else those of
// reading.
Status LoadWeights(const WeightSource& source, const ParameterLayout& layout, const Tensor& values);

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_LOAD_WEIGHTS_H_
