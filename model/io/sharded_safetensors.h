// Hugging Face's safetensors, one file or shards with an index, as a WeightSource; and its writer.
//
// Called by trainer/models for folders of Hugging Face's, for runs, and for export.
//
//   CRIA_ASSIGN_OR_RETURN(const auto source, SafetensorsSource::Open("Llama-3.2-1B"));
//   source->weights()     // of all shards, by name
//
//   model.safetensors                     one file, or
//   model.safetensors.index.json          {"metadata": {"total_size": 123}, "weight_map":
//   model-00001-of-00002.safetensors        {"lm_head.weight": "model-00002-of-00002.safetensors"}}
//   model-00002-of-00002.safetensors
//
// Names: some exports of the bare model leave out "model."; it is put back. Rotary tables of old
// files (rotary_emb.inv_freq) are left out: they follow from the config. FP8 values are read as
// values; FP8 with scales beside it (*.weight_scale, *.weight_scale_inv, *.input_scale) is refused,
// since the values alone are not the weights.
// Source: huggingface_hub's split of state dicts and index file; safetensors.h has the format.

#ifndef CRIA_MODEL_IO_SHARDED_SAFETENSORS_H_
#define CRIA_MODEL_IO_SHARDED_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/io/safetensors.h"
#include "model/io/weight_source.h"

namespace cria::model {

inline constexpr char kSafetensorsFile[] = "model.safetensors";
inline constexpr char kSafetensorsIndexFile[] = "model.safetensors.index.json";

class SafetensorsSource : public WeightSource {
 public:
  // `path`: a folder (its index, else its model.safetensors) or a .safetensors file. NotFound when
  // there is neither; DataLoss, naming the shard and the tensor, when a shard is missing, holds
  // what the index does not map to it, or lacks what the index does; InvalidArgument for a shard's
  // name that leaves the folder, a weight twice, a scalar or an empty weight, FP8 with scales. A
  // metadata.total_size that is not the sum is a warning with both numbers, as the reference loads
  // such folders and every shard has been checked by itself.
  static StatusOr<std::unique_ptr<SafetensorsSource>> Open(const std::string& path);

  // Over files that are open; `path` is for messages. Shares them.
  static StatusOr<std::unique_ptr<SafetensorsSource>> FromFiles(
      std::vector<std::shared_ptr<const SafetensorsFile>> files, const std::string& path);

  const std::string& path() const override { return path_; }
  const std::vector<WeightInfo>& weights() const override { return weights_; }
  Status ReadRows(const WeightInfo& weight, int64_t begin, int64_t end, StDtype dtype,
                  void* to) const override;

  // The weights' files, in their order; with an index, sorted by name.
  const std::vector<std::shared_ptr<const SafetensorsFile>>& files() const { return files_; }

  // The index that lists the files; empty when there is none.
  const std::string& index_path() const { return index_path_; }

 private:
  struct Place {
    const SafetensorsFile* file;
    const TensorInfo* info;
  };
  explicit SafetensorsSource(const std::string& path) : path_(path) {}

  std::string path_, index_path_;
  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  std::vector<WeightInfo> weights_;
  std::vector<Place> places_;  // of weights_, one each
};

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_SHARDED_SAFETENSORS_H_
