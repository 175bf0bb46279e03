#include "model/io/sharded_safetensors.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace cria::model {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{100} << 20;
constexpr size_t kMaxShards = 10'000;

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool IsRotaryTable(std::string_view name) { return EndsWith(name, "rotary_emb.inv_freq"); }

// The scales that quantised checkpoints keep beside their weights.
bool IsQuantizationScale(std::string_view name) {
  for (const char* end : {".weight_scale", ".weight_scale_inv", ".input_scale"}) {
    if (EndsWith(name, end)) return true;
  }
  return false;
}

// A weight is a matrix or a vector with something in it; what else a file may legally hold
// (scalars, empty tensors of any size) has no place in a model.
Status CheckIsWeight(const SafetensorsFile& file, const TensorInfo& info) {
  const size_t rank = info.shape.size();
  if ((rank == 1 || rank == 2) && info.end > info.begin) return OkStatus();
  return InvalidArgumentError(file.path(), ": tensor ", info.name, " is ",
                              DescribeTensor(info.dtype, info.shape),
                              "; a weight has one or two dimensions and is not empty");
}

// A shard's name must be a file's name in the folder of the index, and nothing else.
Status CheckShardName(const std::string& index, const std::string& shard) {
  const bool plain = !shard.empty() && shard != "." && shard != ".." &&
                     shard.find_first_of("/\\") == std::string::npos &&
                     shard.find('\0') == std::string::npos;
  if (plain && EndsWith(shard, ".safetensors")) return OkStatus();
  return InvalidArgumentError(index, ": weight_map: \"", shard,
                              "\" is not the name of a .safetensors file beside it");
}

struct Index {
  std::map<std::string, std::vector<std::string>> names_of_shard;
  int64_t total_size = -1;  // -1: the index does not say
};

StatusOr<Index> ReadIndex(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  CRIA_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  CRIA_ASSIGN_OR_RETURN(const Json map, JsonGet<Json>(json, "weight_map", path));
  if (!map.is_object() || map.empty()) {
    return InvalidArgumentError(path, ": weight_map: expected an object with weights");
  }
  Index index;
  for (const auto& [name, shard] : map.items()) {
    if (!shard.is_string()) {
      return InvalidArgumentError(path, ": weight_map: ", name, ": expected a file's name");
    }
    index.names_of_shard[shard.get<std::string>()].push_back(name);
  }
  if (index.names_of_shard.size() > kMaxShards) {
    return InvalidArgumentError(path, ": weight_map: ", index.names_of_shard.size(),
                                " shards, at most ", kMaxShards);
  }
  CRIA_ASSIGN_OR_RETURN(const Json metadata, JsonGetOr<Json>(json, "metadata", Json(), path));
  if (metadata.is_object() && metadata.contains("total_size")) {
    // Some versions of the reference wrote it as a float.
    CRIA_ASSIGN_OR_RETURN(const auto size,
                          JsonGet<double>(metadata, "total_size", path + ": metadata"));
    if (!(size >= 0 && size < 9e15)) {
      return InvalidArgumentError(path, ": metadata: total_size: ", size, " is no count of bytes");
    }
    index.total_size = static_cast<int64_t>(size);
  }
  return index;
}

// A shard holds exactly the tensors that the index maps to it.
Status CheckShard(const std::string& index, const SafetensorsFile& file,
                  const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (file.Find(name) == nullptr) {
      return DataLossError(index, ": weight_map has ", name, " in ", file.path(),
                           ", which has no such tensor");
    }
  }
  if (file.tensors().size() == names.size()) return OkStatus();
  const std::vector<std::string> sorted = [&] {
    std::vector<std::string> copy = names;
    std::sort(copy.begin(), copy.end());
    return copy;
  }();
  for (const TensorInfo& tensor : file.tensors()) {
    if (!std::binary_search(sorted.begin(), sorted.end(), tensor.name)) {
      return DataLossError(file.path(), ": tensor ", tensor.name, " is not in the weight_map of ",
                           index);
    }
  }
  return OkStatus();
}

StatusOr<std::vector<std::shared_ptr<const SafetensorsFile>>> OpenShards(const std::string& dir,
                                                                         const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const Index index, ReadIndex(path));
  std::vector<std::shared_ptr<const SafetensorsFile>> files;
  int64_t total = 0;
  for (const auto& [shard, names] : index.names_of_shard) {
    CRIA_RETURN_IF_ERROR(CheckShardName(path, shard));
    const std::string shard_path = JoinPath(dir, shard);
    StatusOr<SafetensorsFile> file = SafetensorsFile::Open(shard_path);
    if (file.status().code() == StatusCode::kNotFound) {
      return DataLossError(path, ": the shard ", shard, " is missing: ", Message(file.status()));
    }
    CRIA_RETURN_IF_ERROR(file.status());
    CRIA_RETURN_IF_ERROR(CheckShard(path, *file, names));
    for (const TensorInfo& tensor : file->tensors()) {
      total += static_cast<int64_t>(tensor.end - tensor.begin);
    }
    files.push_back(std::make_shared<const SafetensorsFile>(std::move(*file)));
  }
  if (index.total_size >= 0 && index.total_size != total) {
    LogWarning(path, ": metadata.total_size is ", index.total_size, ", the shards' tensors have ",
               total, " bytes");
  }
  return files;
}

}  // namespace

StatusOr<std::unique_ptr<SafetensorsSource>> SafetensorsSource::Open(const std::string& path) {
  std::string file = path;
  if (IsDir(path)) {
    const std::string index = JoinPath(path, kSafetensorsIndexFile);
    file = JoinPath(path, kSafetensorsFile);
    if (!Exists(file) && Exists(index)) {
      CRIA_ASSIGN_OR_RETURN(auto shards, OpenShards(path, index));
      CRIA_ASSIGN_OR_RETURN(auto source, FromFiles(std::move(shards), path));
      source->index_path_ = index;
      return source;
    }
    if (!Exists(file)) {
      return NotFoundError(path, ": neither ", kSafetensorsFile, " nor ", kSafetensorsIndexFile);
    }
  }
  CRIA_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(file));
  return FromFiles({std::make_shared<const SafetensorsFile>(std::move(opened))}, path);
}

StatusOr<std::unique_ptr<SafetensorsSource>> SafetensorsSource::FromFiles(
    std::vector<std::shared_ptr<const SafetensorsFile>> files, const std::string& path) {
  std::unique_ptr<SafetensorsSource> source(new SafetensorsSource(path));
  source->files_ = std::move(files);
  bool bare = false;  // names without "model."
  bool full = false;
  for (const auto& file : source->files_) {
    bare = bare || file->Find("embed_tokens.weight") != nullptr;
    full = full || file->Find("model.embed_tokens.weight") != nullptr;
  }
  std::vector<std::pair<std::string, Place>> all;
  for (const auto& file : source->files_) {
    for (const TensorInfo& info : file->tensors()) {
      if (IsRotaryTable(info.name)) continue;
      if (IsQuantizationScale(info.name)) {
        return InvalidArgumentError(file->path(), ": ", info.name,
                                    ": weights with scales beside them are not supported; save the "
                                    "model in bf16");
      }
      CRIA_RETURN_IF_ERROR(CheckIsWeight(*file, info));
      const bool add_prefix = bare && !full && info.name != "lm_head.weight";
      all.emplace_back((add_prefix ? "model." : "") + info.name, Place{file.get(), &info});
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [name, place] : all) {
    if (!source->weights_.empty() && source->weights_.back().name == name) {
      return InvalidArgumentError(path, ": ", name, " is in ", source->places_.back().file->path(),
                                  " and in ", place.file->path());
    }
    source->weights_.push_back({std::move(name), place.info->dtype, place.info->shape});
    source->places_.push_back(place);
  }
  return source;
}

Status SafetensorsSource::ReadRows(const WeightInfo& weight, int64_t begin, int64_t end,
                                   StDtype dtype, void* to) const {
  const WeightInfo* known = Find(weight.name);
  CRIA_CHECK(known != nullptr, "no weight ", weight.name, " in ", path_);
  CRIA_CHECK(0 <= begin && begin <= end && end <= known->rows(), "rows [", begin, ", ", end,
             ") of ", weight.name);
  const Place& place = places_[static_cast<size_t>(known - weights_.data())];
  const int bits = StDtypeBits(place.info->dtype);
  if (bits % 8 != 0) {
    return InvalidArgumentError(place.file->path(), ": tensor ", place.info->name, " is ",
                                StDtypeName(place.info->dtype), ", which can't be read as weights");
  }
  const int64_t row_bytes = known->columns() * bits / 8;
  const std::string_view bytes = place.file->Data(*place.info);
  const Status converted = ConvertElements(place.info->dtype, bytes.data() + begin * row_bytes,
                                           (end - begin) * known->columns(), dtype, to);
  return converted.ok()
             ? converted
             : Annotate(converted, StrCat(place.file->path(), ": tensor ", place.info->name));
}

}  // namespace cria::model
