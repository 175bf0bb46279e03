// Weights of any source as Hugging Face's safetensors: one file, or shards and an index.
//
// Called by export and import. Weights are read and converted in blocks; none is held whole.
//
//   CRIA_ASSIGN_OR_RETURN(const HfWeights written,
//                         WriteHfWeights(*source, names, {.dtype = StDtype::kBF16}, "out"));
//
// Weights go to shards in the order of `names`, which transformers keeps too: a shard takes the
// next one while it stays within max_shard_bytes, a weight above that has a shard of its own. With
// one shard the file is model.safetensors, else model-00001-of-0000N.safetensors and so on, and
// model.safetensors.index.json lists them, byte for byte as transformers 5 writes it.
// Source: huggingface_hub's split_state_dict_into_shards_factory. Thread-safe.

#ifndef CRIA_MODEL_IO_HF_WEIGHTS_WRITER_H_
#define CRIA_MODEL_IO_HF_WEIGHTS_WRITER_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/io/weight_source.h"

namespace cria::model {

struct HfWeightsOptions {
  std::optional<StDtype> dtype = std::nullopt;  // none: each weight keeps its own
  uint64_t max_shard_bytes = 5'000'000'000;
  const std::atomic<bool>* stop = nullptr;  // set by a signal handler: Cancelled
};

struct HfWeights {
  std::vector<std::string> files;  // names in the folder, the index not among them
  int64_t parameters = 0;
  int64_t bytes = 0;  // of the weights
};

// Writes the named weights of the source (each must be there: CHECKed) into the folder `dir`.
// Errors: the source's, the file system's, a conversion that does not exist.
StatusOr<HfWeights> WriteHfWeights(const WeightSource& source,
                                   const std::vector<std::string>& names,
                                   const HfWeightsOptions& options, const std::string& dir);

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_HF_WEIGHTS_WRITER_H_
