#include "trainer/models/hf_writer.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "model/io/hf_weights_writer.h"
#include "model/io/sharded_safetensors.h"
#include "model/llama/load_weights.h"
#include "model/llama/parameters.h"
#include "trainer/models/hf_side_files.h"

namespace cria::trainer {
namespace {

using model::StDtype;

constexpr size_t kCopyBytes = size_t{4} << 20;

// A folder under construction beside its destination; removed when it is not published.
class TempFolder {
 public:
  explicit TempFolder(const std::string& out) : path_(StrCat(out, ".tmp-", getpid())) {}
  ~TempFolder() {
    if (!published_) (void)RemoveAll(path_);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }

  Status Publish(const std::string& out) {
    CRIA_RETURN_IF_ERROR(Rename(path_, out));
    published_ = true;
    return OkStatus();
  }

 private:
  const std::string path_;
  bool published_ = false;
};

// transformers' order of a state dict, which decides what goes to which shard.
std::vector<std::string> WeightNames(const model::LlamaConfig& config) {
  std::vector<std::string> names = {"model.embed_tokens.weight"};
  for (int64_t i = 0; i < config.layers; ++i) {
    for (const char* part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
                             "input_layernorm", "post_attention_layernorm"}) {
      names.push_back(StrCat("model.layers.", i, ".", part, ".weight"));
    }
  }
  names.push_back("model.norm.weight");
  if (!config.tied_head) names.push_back("lm_head.weight");
  return names;
}

Status CopyFile(const std::string& from, const std::string& to, const std::atomic<bool>* stop) {
  CRIA_ASSIGN_OR_RETURN(const MappedFile source, MappedFile::Open(from));
  CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(to));
  for (size_t at = 0; at < source.bytes().size(); at += kCopyBytes) {
    if (stop != nullptr && *stop) return CancelledError("stopped");
    CRIA_RETURN_IF_ERROR(file->Append(source.bytes().substr(at, kCopyBytes)));
  }
  return file->Commit();
}

// The source's own weight files, when they hold what is asked for already; else null.
const model::SafetensorsSource* Unchanged(const ModelFiles& files, const HfWriterOptions& options) {
  if (files.format != ModelFormat::kHf || options.max_shard_bytes) return nullptr;
  if (options.dtype) {
    for (const model::WeightInfo& weight : files.weights->weights()) {
      if (weight.dtype != *options.dtype) return nullptr;
    }
  }
  return dynamic_cast<const model::SafetensorsSource*>(files.weights.get());
}

StatusOr<HfWriterResult> CopyWeights(const model::SafetensorsSource& source,
                                     const HfWriterOptions& options, const std::string& dir) {
  HfWriterResult result;
  for (const auto& file : source.files()) {
    CRIA_RETURN_IF_ERROR(
        CopyFile(file->path(), JoinPath(dir, BaseName(file->path())), options.stop));
    ++result.num_files;
    for (const model::TensorInfo& tensor : file->tensors()) {
      result.bytes += static_cast<int64_t>(tensor.end - tensor.begin);
    }
  }
  if (!source.index_path().empty()) {
    CRIA_RETURN_IF_ERROR(
        CopyFile(source.index_path(), JoinPath(dir, model::kSafetensorsIndexFile), options.stop));
  }
  return result;
}

StatusOr<std::map<std::string, std::string>> SideFiles(const ModelFiles& files,
                                                       const HfWriterOptions& options) {
  if (files.format != ModelFormat::kHf) {
    return MakeHfSideFiles(files, options.dtype.value_or(MainDtype(*files.weights)));
  }
  std::map<std::string, std::string> side = files.hf_files;
  if (options.dtype && Unchanged(files, options) == nullptr) {
    std::string& config = side.at("config.json");
    CRIA_ASSIGN_OR_RETURN(config,
                          WithDtype(config, *options.dtype, JoinPath(files.path, "config.json")));
  }
  return side;
}

}  // namespace

StDtype MainDtype(const model::WeightSource& source) {
  std::map<StDtype, int64_t> elements;
  for (const model::WeightInfo& weight : source.weights()) {
    elements[weight.dtype] += weight.rows() * weight.columns();
  }
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return most == elements.end() ? StDtype::kF32 : most->first;
}

StatusOr<HfWriterResult> WriteHfModel(const ModelFiles& files, const std::string& out,
                                      const HfWriterOptions& options) {
  if (Exists(out)) return InvalidArgumentError(out, " exists already: choose another --out");
  CRIA_RETURN_IF_ERROR(model::CheckWeights(*files.weights, model::ParameterLayout(files.config)));
  CRIA_ASSIGN_OR_RETURN(const auto side, SideFiles(files, options));
  TempFolder temp(out);
  CRIA_RETURN_IF_ERROR(MakeDirs(temp.path()));
  HfWriterResult result;
  if (const model::SafetensorsSource* source = Unchanged(files, options)) {
    CRIA_ASSIGN_OR_RETURN(result, CopyWeights(*source, options, temp.path()));
  } else {
    model::HfWeightsOptions weights = {.dtype = options.dtype, .stop = options.stop};
    if (options.max_shard_bytes) weights.max_shard_bytes = *options.max_shard_bytes;
    CRIA_ASSIGN_OR_RETURN(
        const model::HfWeights written,
        model::WriteHfWeights(*files.weights, WeightNames(files.config), weights, temp.path()));
    result = {static_cast<int>(written.files.size()), written.bytes};
  }
  for (const auto& [name, text] : side) {
    CRIA_RETURN_IF_ERROR(WriteFileAtomic(JoinPath(temp.path(), name), text));
  }
  CRIA_RETURN_IF_ERROR(temp.Publish(out));
  return result;
}

}  // namespace cria::trainer
