#include "model/io/hf_weights_writer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "model/io/safetensors.h"
#include "model/io/sharded_safetensors.h"

namespace cria::model {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;

using Shard = std::vector<const WeightInfo*>;

StDtype TypeOf(const WeightInfo& weight, const HfWeightsOptions& options) {
  return options.dtype.value_or(weight.dtype);
}

int64_t RowBytes(const WeightInfo& weight, StDtype dtype) {
  return weight.columns() * StDtypeBits(dtype) / 8;
}

std::vector<Shard> SplitIntoShards(const std::vector<const WeightInfo*>& weights,
                                   const HfWeightsOptions& options) {
  std::vector<Shard> shards;
  Shard current;
  uint64_t current_bytes = 0;
  for (const WeightInfo* weight : weights) {
    const auto bytes =
        static_cast<uint64_t>(weight->rows() * RowBytes(*weight, TypeOf(*weight, options)));
    if (bytes > options.max_shard_bytes) {
      shards.push_back({weight});
      continue;
    }
    if (current_bytes + bytes > options.max_shard_bytes) {
      shards.push_back(std::move(current));
      current.clear();
      current_bytes = 0;
    }
    current.push_back(weight);
    current_bytes += bytes;
  }
  if (!current.empty()) shards.push_back(std::move(current));
  return shards;
}

Status WriteShard(const WeightSource& source, const Shard& shard, const HfWeightsOptions& options,
                  const std::string& path) {
  std::vector<TensorToStream> tensors;
  std::string block;
  for (const WeightInfo* weight : shard) {
    const StDtype dtype = TypeOf(*weight, options);
    const auto write = [&, weight, dtype](const TensorToStream::Append& append) -> Status {
      const int64_t row_bytes = RowBytes(*weight, dtype);
      const int64_t step = std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, row_bytes));
      for (int64_t row = 0; row < weight->rows(); row += step) {
        if (options.stop != nullptr && *options.stop) return CancelledError("stopped");
        const int64_t end = std::min(row + step, weight->rows());
        block.resize(static_cast<size_t>((end - row) * row_bytes));
        CRIA_RETURN_IF_ERROR(source.ReadRows(*weight, row, end, dtype, block.data()));
        CRIA_RETURN_IF_ERROR(append(block));
      }
      return OkStatus();
    };
    tensors.push_back({weight->name, dtype, weight->shape, write});
  }
  return StreamSafetensors(path, tensors, {{"format", "pt"}}).status();
}

// As json.dumps(index, indent=2, sort_keys=True) writes it.
Status WriteIndex(const std::vector<Shard>& shards, const HfWeights& written,
                  const std::string& dir) {
  std::vector<std::pair<std::string, std::string>> places;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const WeightInfo* weight : shards[i]) {
      places.emplace_back(weight->name, written.files[i]);
    }
  }
  std::sort(places.begin(), places.end());
  Json map = Json::object();
  for (const auto& [name, file] : places) JsonAppend(&map, name, file);
  Json index = Json::object();
  index["metadata"] = {{"total_parameters", written.parameters}, {"total_size", written.bytes}};
  index["weight_map"] = std::move(map);
  return WriteJsonFile(JoinPath(dir, kSafetensorsIndexFile), index);
}

}  // namespace

StatusOr<HfWeights> WriteHfWeights(const WeightSource& source,
                                   const std::vector<std::string>& names,
                                   const HfWeightsOptions& options, const std::string& dir) {
  std::vector<const WeightInfo*> weights;
  HfWeights written;
  for (const std::string& name : names) {
    const WeightInfo* weight = source.Find(name);
    CRIA_CHECK(weight != nullptr, source.path(), " has no ", name);
    weights.push_back(weight);
    written.parameters += weight->rows() * weight->columns();
    written.bytes += weight->rows() * RowBytes(*weight, TypeOf(*weight, options));
  }
  const std::vector<Shard> shards = SplitIntoShards(weights, options);
  for (size_t i = 0; i < shards.size(); ++i) {
    written.files.push_back(
        shards.size() == 1 ? std::string(kSafetensorsFile)
                           : StrFormat("model-%05zu-of-%05zu.safetensors", i + 1, shards.size()));
    CRIA_RETURN_IF_ERROR(
        WriteShard(source, shards[i], options, JoinPath(dir, written.files.back())));
  }
  if (shards.size() > 1) CRIA_RETURN_IF_ERROR(WriteIndex(shards, written, dir));
  return written;
}

}  // namespace cria::model
