// A rank's parts of a model's weights from a source of whole ones.
//
//   CRIA_RETURN_IF_ERROR(LoadParts(*source, config, model.parameters()));
//
// Thread-compatible.

#ifndef CRIA_MODEL_PARALLEL_LOAD_PARTS_H_
#define CRIA_MODEL_PARALLEL_LOAD_PARTS_H_

#include "base/status.h"
#include "model/io/weight_source.h"
#include "model/llama/config.h"
#include "model/parallel/parameter_buffers.h"

namespace cria::model {

// CheckWeights (load_weights.h) of the whole model, then what this rank keeps of each parameter.
// Reads the rows that the rank has a part of, and is done with WeightsChanged. Errors of
// CheckWeights before the first byte changes; else those of reading.
Status LoadParts(const WeightSource& source, const LlamaConfig& config, ParameterBuffers* buffers);

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_LOAD_PARTS_H_
