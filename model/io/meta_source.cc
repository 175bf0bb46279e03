#include "model/io/meta_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "model/io/qk_order.h"

namespace cria::model {

struct MetaSource::Rule {
  std::string hf_name;
  Join join = Join::kRows;
  bool rotary = false;  // of Q or K
  bool embedding = false;
};

namespace {

constexpr size_t kMaxShards = 100;  // two digits in the files' names
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

struct LayerRule {
  const char* meta;
  const char* hf;
  char join;  // 'r'ows, 'c'olumns, 's'ame
  bool rotary;
};
constexpr LayerRule kLayerRules[] = {
    {"attention.wq.weight", "self_attn.q_proj.weight", 'r', true},
    {"attention.wk.weight", "self_attn.k_proj.weight", 'r', true},
    {"attention.wv.weight", "self_attn.v_proj.weight", 'r', false},
    {"attention.wo.weight", "self_attn.o_proj.weight", 'c', false},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight", 'r', false},
    {"feed_forward.w3.weight", "mlp.up_proj.weight", 'r', false},
    {"feed_forward.w2.weight", "mlp.down_proj.weight", 'c', false},
    {"attention_norm.weight", "input_layernorm.weight", 's', false},
    {"ffn_norm.weight", "post_attention_layernorm.weight", 's', false},
};

// "layers.12.attention.wq.weight" to "12" and the rest; nothing for another name.
std::optional<std::pair<std::string, std::string>> SplitLayerName(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  if (name.compare(0, kLayers.size(), kLayers) != 0) return std::nullopt;
  const size_t dot = name.find('.', kLayers.size());
  if (dot == std::string::npos) return std::nullopt;
  const std::string number = name.substr(kLayers.size(), dot - kLayers.size());
  const bool digits =
      !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) return std::nullopt;
  return std::pair(number, name.substr(dot + 1));
}

std::vector<StridedTensor> TensorsOf(const SafetensorsFile& file) {
  std::vector<StridedTensor> tensors;
  for (const TensorInfo& info : file.tensors()) {
    StridedTensor tensor = {info.name, info.dtype, info.shape, {}, file.Data(info)};
    if (info.shape.size() == 2) tensor.strides = {info.shape[1], 1};
    if (info.shape.size() == 1) tensor.strides = {1};
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

bool SameBytes(const StridedTensor& a, const StridedTensor& b) {
  std::string x(static_cast<size_t>(a.columns() * StDtypeBits(a.dtype) / 8), '\0'), y = x;
  for (int64_t row = 0; row < a.rows(); ++row) {
    CopyRow(a, row, x.data());
    CopyRow(b, row, y.data());
    if (x != y) return false;
  }
  return true;
}

}  // namespace

StatusOr<std::unique_ptr<MetaSource>> MetaSource::Open(const std::string& dir,
                                                       const LlamaConfig& config) {
  std::unique_ptr<MetaSource> source(new MetaSource(dir));
  CRIA_RETURN_IF_ERROR(source->OpenFiles());
  CRIA_RETURN_IF_ERROR(source->AddWeights(config));
  CRIA_RETURN_IF_ERROR(source->CompareHead());
  return source;
}

Status MetaSource::OpenFiles() {
  const std::string single = JoinPath(path_, "consolidated.safetensors");
  CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDir(path_));
  std::vector<std::string> parts;
  for (const std::string& name : names) {  // sorted
    if (name.size() == 19 && name.compare(0, 13, "consolidated.") == 0 &&
        name.compare(15, 4, ".pth") == 0) {
      parts.push_back(name);
    }
  }
  if (parts.size() > kMaxShards) return InvalidArgumentError(path_, ": too many shards");
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string wanted = StrFormat("consolidated.%02zu.pth", i);
    if (parts[i] != wanted) return DataLossError(path_, ": ", wanted, " is missing");
    CRIA_ASSIGN_OR_RETURN(TorchFile file, TorchFile::Open(JoinPath(path_, parts[i])));
    torch_files_.push_back(std::move(file));
    shards_.push_back(torch_files_.back().tensors());
  }
  if (parts.empty()) {
    if (!Exists(single)) {
      return NotFoundError(path_, ": neither consolidated.00.pth nor consolidated.safetensors");
    }
    CRIA_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(single));
    safetensors_files_.push_back(std::move(file));
    shards_.push_back(TensorsOf(safetensors_files_.back()));
  }
  for (std::vector<StridedTensor>& shard : shards_) {
    std::sort(shard.begin(), shard.end(),
              [](const StridedTensor& a, const StridedTensor& b) { return a.name < b.name; });
  }
  return OkStatus();
}

// All have the same names, so that each stands at the same place.
Status MetaSource::CheckSameNames() const {
  const std::vector<StridedTensor>& first = shards_[0];
  for (const std::vector<StridedTensor>& shard : shards_) {
    const auto [mine, theirs] =
        std::mismatch(first.begin(), first.end(), shard.begin(), shard.end(),
                      [](const auto& a, const auto& b) { return a.name == b.name; });
    if (mine == first.end() && theirs == shard.end()) continue;
    // Both are sorted: the lesser name is the one that the other shard lacks.
    const bool extra = mine == first.end() || (theirs != shard.end() && theirs->name < mine->name);
    return DataLossError(path_, ": ", (extra ? theirs : mine)->name, " is not in all of the ",
                         shards_.size(), " shards");
  }
  return OkStatus();
}

Status MetaSource::AddWeights(const LlamaConfig& config) {
  CRIA_RETURN_IF_ERROR(CheckSameNames());
  const auto rule_of = [](const std::string& name) -> std::optional<Rule> {
    if (name == "rope.freqs") return Rule{};
    if (name == "tok_embeddings.weight") return Rule{kEmbedding, Join::kRows, false, true};
    if (name == "norm.weight") return Rule{"model.norm.weight", Join::kSame};
    if (name == "output.weight") return Rule{kHead, Join::kRows};
    const auto layer = SplitLayerName(name);
    if (!layer) return std::nullopt;
    for (const LayerRule& rule : kLayerRules) {
      if (layer->second != rule.meta) continue;
      const Join join = rule.join == 'r'   ? Join::kRows
                        : rule.join == 'c' ? Join::kColumns
                                           : Join::kSame;
      return Rule{StrCat("model.layers.", layer->first, ".", rule.hf), join, rule.rotary};
    }
    return std::nullopt;
  };
  std::vector<std::pair<WeightInfo, Plan>> all;
  for (size_t i = 0; i < shards_[0].size(); ++i) {
    const std::string& name = shards_[0][i].name;
    std::vector<const StridedTensor*> parts;
    for (const std::vector<StridedTensor>& shard : shards_) parts.push_back(&shard[i]);
    const std::optional<Rule> rule = rule_of(name);
    if (!rule) return InvalidArgumentError(path_, ": unknown weight ", name.substr(0, 120));
    if (rule->hf_name.empty()) continue;
    WeightInfo info;
    CRIA_ASSIGN_OR_RETURN(Plan plan, PlanOf(*rule, std::move(parts), config, path_, &info));
    all.emplace_back(std::move(info), std::move(plan));
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
  for (auto& [info, plan] : all) {
    // "layers.01" and "layers.1" are two names of one.
    if (!weights_.empty() && weights_.back().name == info.name) {
      return DataLossError(path_, ": ", info.name, " twice");
    }
    weights_.push_back(std::move(info));
    plans_.push_back(std::move(plan));
  }
  return OkStatus();
}

StatusOr<MetaSource::Plan> MetaSource::PlanOf(const Rule& rule,
                                              std::vector<const StridedTensor*> parts,
                                              const LlamaConfig& config, const std::string& path,
                                              WeightInfo* info) {
  const StridedTensor& first = *parts[0];
  const auto wrong = [&](const char* what) {
    return InvalidArgumentError(path, ": ", first.name, " is ",
                                DescribeTensor(first.dtype, first.shape), ": ", what);
  };
  const size_t rank = rule.join == Join::kSame ? 1 : 2;
  if (first.shape.size() != rank || first.data.empty()) return wrong("not of a weight's shape");
  if (StDtypeBits(first.dtype) % 8 != 0) return wrong("not of a weight's type");
  for (const StridedTensor* part : parts) {
    if (part->dtype != first.dtype || part->shape != first.shape) {
      return wrong("the shards differ in its type or shape");
    }
  }
  Plan plan = {.parts = std::move(parts), .join = rule.join};
  const auto num_parts = static_cast<int64_t>(plan.parts.size());
  if (rule.embedding && first.columns() != config.dim) {
    if (first.columns() > config.dim || first.columns() * num_parts != config.dim) {
      return wrong("its columns are neither dim nor, over all shards, together dim");
    }
    plan.join = Join::kColumns;
  }
  if (plan.join == Join::kSame) {
    for (const StridedTensor* part : plan.parts) {
      if (!SameBytes(first, *part)) return wrong("the shards differ in it; all should have it");
    }
    plan.parts.resize(1);
  }
  *info = {rule.hf_name, first.dtype, first.shape};
  if (plan.join == Join::kRows) info->shape[0] *= num_parts;
  if (plan.join == Join::kColumns) info->shape[1] *= num_parts;
  if (rule.rotary) {
    plan.head_dim = config.HeadDim();
    if (plan.head_dim < 2 || plan.head_dim % 2 != 0 || info->shape[0] % plan.head_dim != 0) {
      return wrong("its rows are no whole heads");
    }
  }
  return plan;
}

Status MetaSource::CompareHead() {
  const WeightInfo* head = Find(kHead);
  const WeightInfo* embedding = Find(kEmbedding);
  head_is_tied_ = head == nullptr;
  if (head == nullptr || embedding == nullptr || head->shape != embedding->shape ||
      head->dtype != embedding->dtype) {
    return OkStatus();
  }
  std::string x(static_cast<size_t>(head->columns() * StDtypeBits(head->dtype) / 8), '\0'), y = x;
  for (int64_t row = 0; row < head->rows(); ++row) {
    CRIA_RETURN_IF_ERROR(ReadRows(*head, row, row + 1, head->dtype, x.data()));
    CRIA_RETURN_IF_ERROR(ReadRows(*embedding, row, row + 1, head->dtype, y.data()));
    if (x != y) return OkStatus();
  }
  head_is_tied_ = true;
  const auto at = static_cast<size_t>(head - weights_.data());
  weights_.erase(weights_.begin() + static_cast<ptrdiff_t>(at));
  plans_.erase(plans_.begin() + static_cast<ptrdiff_t>(at));
  return OkStatus();
}

Status MetaSource::ReadRows(const WeightInfo& weight, int64_t begin, int64_t end, StDtype dtype,
                            void* to) const {
  const WeightInfo* known = Find(weight.name);
  CRIA_CHECK(known != nullptr, "no weight ", weight.name, " in ", path_);
  CRIA_CHECK(0 <= begin && begin <= end && end <= known->rows(), "rows [", begin, ", ", end,
             ") of ", weight.name);
  const Plan& plan = plans_[static_cast<size_t>(known - weights_.data())];
  const int64_t columns = known->columns();
  std::string row_bytes(static_cast<size_t>(columns * StDtypeBits(known->dtype) / 8), '\0');
  auto* out = static_cast<char*>(to);
  for (int64_t row = begin; row < end; ++row) {
    int64_t from = plan.head_dim > 0 ? MetaRowFromHf(row, plan.head_dim) : row;
    if (plan.join == Join::kColumns) {
      const size_t part_bytes = row_bytes.size() / plan.parts.size();
      for (size_t i = 0; i < plan.parts.size(); ++i) {
        CopyRow(*plan.parts[i], from, row_bytes.data() + i * part_bytes);
      }
    } else {
      const int64_t part_rows = plan.parts[0]->rows();
      CopyRow(*plan.parts[static_cast<size_t>(from / part_rows)], from % part_rows,
              row_bytes.data());
    }
    const Status converted = ConvertElements(known->dtype, row_bytes.data(), columns, dtype, out);
    if (!converted.ok()) return Annotate(converted, StrCat(path_, ": ", known->name));
    out += columns * StDtypeBits(dtype) / 8;
  }
  return OkStatus();
}

}  // namespace cria::model
