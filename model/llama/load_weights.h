// Parameters from safetensors files under Hugging Face's names, checked against a layout.
//
//   CRIA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
//   CRIA_RETURN_IF_ERROR(LoadWeights(file, model.layout(), model.weights()));
//   model.WeightsChanged();
//
// Thread-compatible.

#ifndef CRIA_MODEL_LLAMA_LOAD_WEIGHTS_H_
#define CRIA_MODEL_LLAMA_LOAD_WEIGHTS_H_

#include <string>

#include "base/status.h"
#include "model/io/safetensors.h"
#include "model/llama/parameters.h"
#include "model/tensor.h"

namespace cria::model {

// Copies every parameter of the layout from `<prefix><name>` in the file to its place in `values`
// (fp32, layout.num_elements()); F32 and BF16 are read. NotFound for a missing tensor,
// InvalidArgument for a wrong shape or dtype, or for a tied head that differs from the embedding.
// Tensors that the layout doesn't know are an error too, unless they are rotary tables of old
// files.
Status LoadWeights(const SafetensorsFile& file, const ParameterLayout& layout, const Tensor& values,
                   const std::string& prefix = "");

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_LOAD_WEIGHTS_H_
