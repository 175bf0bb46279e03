#include "model/io/gguf_llama.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/check.h"
#include "model/io/gguf_rope.h"
#include "model/io/gguf_text.h"
#include "model/io/q8_0.h"
#include "model/io/qk_order.h"

namespace cria::model {
namespace {

constexpr uint32_t kQuantizationVersion = 2;  // of the formats of blocks; it has not moved in years
constexpr double kDefaultTheta = 10000;       // llama.cpp's, where the key is missing

// The plain type that holds the values of a stored one.
StDtype PlainType(GgmlType type) {
  switch (type) {
    case GgmlType::kF16:
      return StDtype::kF16;
    case GgmlType::kBF16:
      return StDtype::kBF16;
    default:
      return StDtype::kF32;
  }
}

StatusOr<GgmlType> ReadableType(const GgufTensor& tensor, const std::string& path) {
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0}) {
    if (tensor.type->id == static_cast<uint32_t>(type)) return type;
  }
  return UnimplementedError(path, ": tensor ", tensor.name, " is ", tensor.type->name,
                            "; F32, F16, BF16 and Q8_0 are read (llama-quantize --allow-requantize "
                            "makes a Q8_0 or F16 file of this one)");
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += StrCat(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

std::string Key(std::string_view name) { return StrCat("llama.", name); }

StatusOr<int64_t> IntegerOr(const GgufFile& file, const std::string& key, int64_t fallback) {
  if (!file.Has(key)) return fallback;
  return file.Integer(key);
}

StatusOr<double> RealOr(const GgufFile& file, const std::string& key, double fallback) {
  if (!file.Has(key)) return fallback;
  return file.Real(key);
}

// What is not a Llama of ours, whatever its tensors are.
Status CheckKind(const GgufFile& file) {
  CRIA_ASSIGN_OR_RETURN(const std::string_view name, file.String("general.architecture"));
  if (name != "llama") {
    return InvalidArgumentError(file.path(), ": general.architecture is ", GgufQuoted(name),
                                "; only llama is read");
  }
  CRIA_ASSIGN_OR_RETURN(const int64_t experts, IntegerOr(file, Key("expert_count"), 0));
  if (experts != 0) {
    return InvalidArgumentError(file.path(), ": llama.expert_count is ", experts,
                                "; mixtures of experts are not read");
  }
  CRIA_ASSIGN_OR_RETURN(const int64_t parts, IntegerOr(file, "split.count", 0));
  if (parts > 1) {
    return UnimplementedError(file.path(), ": one of ", parts,
                              " parts of a model; join them first (llama-gguf-split --merge)");
  }
  return OkStatus();
}

}  // namespace

std::vector<LlamaTensor> LlamaTensors(const LlamaConfig& config) {
  const int64_t dim = config.dim;
  std::vector<LlamaTensor> out;
  out.push_back({"token_embd.weight", "model.embed_tokens.weight", {config.vocab, dim}});
  for (int64_t i = 0; i < config.layers; ++i) {
    const auto add = [&](const char* gguf, const char* hf, std::vector<int64_t> shape,
                         bool is_qk = false) {
      out.push_back({StrCat("blk.", i, ".", gguf, ".weight"),
                     StrCat("model.layers.", i, ".", hf, ".weight"), std::move(shape), is_qk});
    };
    add("attn_norm", "input_layernorm", {dim});
    add("attn_q", "self_attn.q_proj", {config.QDim(), dim}, true);
    add("attn_k", "self_attn.k_proj", {config.KvDim(), dim}, true);
    add("attn_v", "self_attn.v_proj", {config.KvDim(), dim});
    add("attn_output", "self_attn.o_proj", {dim, config.QDim()});
    add("ffn_norm", "post_attention_layernorm", {dim});
    add("ffn_gate", "mlp.gate_proj", {config.ffn, dim});
    add("ffn_up", "mlp.up_proj", {config.ffn, dim});
    add("ffn_down", "mlp.down_proj", {dim, config.ffn});
  }
  out.push_back({"output_norm.weight", "model.norm.weight", {dim}});
  if (!config.tied_head) out.push_back({"output.weight", "lm_head.weight", {config.vocab, dim}});
  return out;
}

uint32_t GgufFileType(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return 0;
    case GgmlType::kF16:
      return 1;
    case GgmlType::kQ8_0:
      return 7;
    case GgmlType::kBF16:
      return 32;
  }
  return 0;
}

Status AddLlamaKeys(const LlamaConfig& config, uint32_t file_type, GgufWriter* writer) {
  writer->AddString("general.architecture", "llama");
  writer->AddU32("general.file_type", file_type);
  writer->AddU32("general.quantization_version", kQuantizationVersion);
  Status status;
  const auto add = [&](const char* name, int64_t value) {
    if (value < 0 || value > std::numeric_limits<uint32_t>::max()) {
      status = InvalidArgumentError("write GGUF: ", Key(name), " is ", value);
      return;
    }
    writer->AddU32(Key(name), static_cast<uint32_t>(value));
  };
  const auto add_real = [&](const char* name, double value) {
    writer->AddF32(Key(name), static_cast<float>(value));
  };
  add("vocab_size", config.vocab);
  add("context_length", config.max_positions);
  add("embedding_length", config.dim);
  add("block_count", config.layers);
  add("feed_forward_length", config.ffn);
  add("attention.head_count", config.heads);
  add("attention.head_count_kv", config.kv_heads);
  add_real("attention.layer_norm_rms_epsilon", config.norm_eps);
  if (config.QDim() != config.dim) {
    add("attention.key_length", config.HeadDim());
    add("attention.value_length", config.HeadDim());
  }
  add("rope.dimension_count", config.HeadDim());
  add_real("rope.freq_base", config.rope_theta);
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.type == "linear") {
    writer->AddString(Key("rope.scaling.type"), "linear");
    add_real("rope.scaling.factor", scaling.factor);
  }
  // Nothing there reads it for this kind of scaling; it tells ScalingFromDivisors.
  if (scaling.type == "llama3") {
    add("rope.scaling.original_context_length", scaling.original_max_positions);
  }
  return status;
}

StatusOr<std::unique_ptr<GgufLlama>> GgufLlama::Create(GgufFile file) {
  std::unique_ptr<GgufLlama> llama(new GgufLlama(std::move(file)));
  CRIA_RETURN_IF_ERROR(CheckKind(llama->file_));
  CRIA_RETURN_IF_ERROR(llama->ReadConfig());
  CRIA_RETURN_IF_ERROR(llama->ReadRope());
  CRIA_RETURN_IF_ERROR(Validate(llama->config_, llama->path()));
  CRIA_RETURN_IF_ERROR(llama->AddWeights());
  return llama;
}

Status GgufLlama::ReadConfig() {
  const GgufFile& f = file_;
  LlamaConfig& c = config_;
  CRIA_ASSIGN_OR_RETURN(c.layers, f.Integer(Key("block_count")));
  CRIA_ASSIGN_OR_RETURN(c.dim, f.Integer(Key("embedding_length")));
  CRIA_ASSIGN_OR_RETURN(c.ffn, f.Integer(Key("feed_forward_length")));
  CRIA_ASSIGN_OR_RETURN(c.heads, f.Integer(Key("attention.head_count")));
  CRIA_ASSIGN_OR_RETURN(c.kv_heads, IntegerOr(f, Key("attention.head_count_kv"), c.heads));
  CRIA_ASSIGN_OR_RETURN(c.max_positions, f.Integer(Key("context_length")));
  CRIA_ASSIGN_OR_RETURN(c.norm_eps, f.Real(Key("attention.layer_norm_rms_epsilon")));
  const GgufTensor* embedding = f.Find("token_embd.weight");
  if (embedding == nullptr) return NotFoundError(path(), ": no tensor token_embd.weight");
  const std::vector<int64_t> shape = embedding->shape();
  CRIA_ASSIGN_OR_RETURN(c.vocab,
                        IntegerOr(f, Key("vocab_size"), shape.empty() ? 0 : shape.front()));
  c.tied_head = f.Find("output.weight") == nullptr;

  if (c.heads < 1) return InvalidArgumentError(path(), ": attention.head_count is ", c.heads);
  CRIA_ASSIGN_OR_RETURN(const int64_t k_length,
                        IntegerOr(f, Key("attention.key_length"), c.dim / c.heads));
  CRIA_ASSIGN_OR_RETURN(const int64_t v_length,
                        IntegerOr(f, Key("attention.value_length"), c.dim / c.heads));
  CRIA_ASSIGN_OR_RETURN(const int64_t rope_dims,
                        IntegerOr(f, Key("rope.dimension_count"), k_length));
  if (k_length < 1 || k_length != v_length || k_length != rope_dims) {
    return InvalidArgumentError(path(), ": llama.attention.key_length ", k_length,
                                ", value_length ", v_length, ", llama.rope.dimension_count ",
                                rope_dims, ": all three must be the same, and positive");
  }
  const bool is_default = c.dim % c.heads == 0 && k_length == c.dim / c.heads;
  c.head_dim = is_default ? 0 : k_length;
  return OkStatus();
}

Status GgufLlama::ReadRope() {
  const GgufFile& f = file_;
  CRIA_ASSIGN_OR_RETURN(config_.rope_theta, RealOr(f, Key("rope.freq_base"), kDefaultTheta));
  RopeScaling& scaling = config_.rope_scaling;
  std::string_view type = "linear";  // what a factor alone means
  if (f.Has(Key("rope.scaling.type"))) {
    CRIA_ASSIGN_OR_RETURN(type, f.String(Key("rope.scaling.type")));
  }
  if (type != "none" && type != "linear") {
    return InvalidArgumentError(path(), ": llama.rope.scaling.type is ", GgufQuoted(type),
                                "; none and linear are read");
  }
  CRIA_ASSIGN_OR_RETURN(double factor, RealOr(f, Key("rope.scale_linear"), 0));
  CRIA_ASSIGN_OR_RETURN(factor, RealOr(f, Key("rope.scaling.factor"), factor));
  // 0 stands for "not scaled", as a missing key does.
  if (type == "linear" && factor != 0 && factor != 1) {
    scaling.type = "linear";
    scaling.factor = factor;
  }
  const GgufTensor* divisors = f.Find(kRopeFreqsName);
  if (divisors == nullptr) return OkStatus();
  if (scaling.type != "default") {
    return InvalidArgumentError(path(), ": it has both llama.rope.scaling.factor ", factor, " and ",
                                kRopeFreqsName, "; one kind of scaling is run");
  }
  CRIA_RETURN_IF_ERROR(Validate(config_, path()));  // before a head size is relied on
  const int64_t half = config_.HeadDim() / 2;
  if (divisors->type->id != static_cast<uint32_t>(GgmlType::kF32) || divisors->num_dims != 1 ||
      divisors->dims[0] != half) {
    return InvalidArgumentError(path(), ": tensor ", kRopeFreqsName, " is ", divisors->Describe(),
                                "; expected F32 [", half, "]");
  }
  std::vector<float> values(static_cast<size_t>(half));
  CRIA_RETURN_IF_ERROR(
      ConvertElements(StDtype::kF32, f.Data(*divisors).data(), half, StDtype::kF32, values.data()));
  CRIA_ASSIGN_OR_RETURN(const int64_t original,
                        IntegerOr(f, Key("rope.scaling.original_context_length"), 0));
  StatusOr<RopeScaling> found = ScalingFromDivisors(values, config_, original);
  if (!found.ok()) {
    return Annotate(found.status(), StrCat(path(), ": tensor ", kRopeFreqsName));
  }
  scaling = *found;
  return OkStatus();
}

StatusOr<GgufLlama::Stored> GgufLlama::Store(const LlamaTensor& wanted) const {
  const GgufTensor* tensor = file_.Find(wanted.gguf_name);
  if (tensor == nullptr) return NotFoundError(path(), ": no tensor ", wanted.gguf_name);
  Stored stored;
  stored.tensor = tensor;
  CRIA_ASSIGN_OR_RETURN(stored.type, ReadableType(*tensor, path()));
  if (tensor->shape() != wanted.shape) {
    return InvalidArgumentError(path(), ": tensor ", wanted.gguf_name, " is ", tensor->Describe(),
                                "; the file's keys ask for ", ShapeText(wanted.shape));
  }
  stored.data = file_.Data(*tensor);
  stored.is_qk = wanted.is_qk;
  const int64_t columns = wanted.is_norm() ? 1 : wanted.shape.back();
  // A quantised vector has no rows of its own: blocks of it cross them.
  if (wanted.is_norm() && stored.type == GgmlType::kQ8_0) {
    return UnimplementedError(path(), ": tensor ", wanted.gguf_name, " is Q8_0; norms are plain");
  }
  stored.row_bytes = GgmlRowBytes(stored.type, columns);
  return stored;
}

Status GgufLlama::AddWeights() {
  std::vector<std::pair<WeightInfo, Stored>> all;
  std::set<std::string_view> known = {kRopeFreqsName};
  for (const LlamaTensor& wanted : LlamaTensors(config_)) {
    CRIA_ASSIGN_OR_RETURN(const Stored stored, Store(wanted));
    known.insert(stored.tensor->name);
    all.push_back({{wanted.hf_name, PlainType(stored.type), wanted.shape}, stored});
  }
  for (const GgufTensor& tensor : file_.tensors()) {
    if (known.contains(tensor.name) || tensor.name.ends_with(".attn_rot_embd.weight")) continue;
    return InvalidArgumentError(path(), ": tensor ", GgufQuoted(tensor.name), " ",
                                tensor.Describe(), " is none of a Llama of ", config_.layers,
                                " layers");
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
  for (auto& [info, stored] : all) {
    weights_.push_back(std::move(info));
    stored_.push_back(stored);
  }
  return OkStatus();
}

const GgufLlama::Stored& GgufLlama::StoredOf(const WeightInfo& weight) const {
  const WeightInfo* own = Find(weight.name);
  CRIA_CHECK(own != nullptr, "no weight ", weight.name);
  return stored_[static_cast<size_t>(own - weights_.data())];
}

GgmlType GgufLlama::StoredType(const WeightInfo& weight) const { return StoredOf(weight).type; }

std::string_view GgufLlama::RowOf(const Stored& stored, int64_t row) const {
  const int64_t at = stored.is_qk ? MetaRowFromHf(row, config_.HeadDim()) : row;
  return stored.data.substr(static_cast<size_t>(at * stored.row_bytes),
                            static_cast<size_t>(stored.row_bytes));
}

std::string_view GgufLlama::StoredRow(const WeightInfo& weight, int64_t row) const {
  CRIA_CHECK(row >= 0 && row < weight.rows(), weight.name, ": row ", row);
  return RowOf(StoredOf(weight), row);
}

Status GgufLlama::ReadRows(const WeightInfo& weight, int64_t begin, int64_t end, StDtype dtype,
                           void* to) const {
  CRIA_CHECK(0 <= begin && begin <= end && end <= weight.rows(), weight.name, ": rows ", begin,
             " to ", end);
  if (begin == end) return OkStatus();
  const Stored& stored = StoredOf(weight);
  const int64_t columns = weight.columns();
  const StDtype plain = PlainType(stored.type);
  Status status;
  if (!stored.is_qk && stored.type != GgmlType::kQ8_0) {  // all rows at once
    status =
        ConvertElements(plain, RowOf(stored, begin).data(), (end - begin) * columns, dtype, to);
  } else {
    std::vector<float> values(stored.type == GgmlType::kQ8_0 ? static_cast<size_t>(columns) : 0);
    auto* out = static_cast<char*>(to);
    for (int64_t row = begin; row < end && status.ok(); ++row) {
      const void* from = RowOf(stored, row).data();
      if (stored.type == GgmlType::kQ8_0) {
        DequantizeQ8(from, columns, values.data());
        from = values.data();
      }
      status = ConvertElements(plain, from, columns, dtype, out);
      out += columns * StDtypeBits(dtype) / 8;
    }
  }
  return status.ok() ? status : Annotate(status, StrCat(path(), ": ", weight.name));
}

}  // namespace cria::model
