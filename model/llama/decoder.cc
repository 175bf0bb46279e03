#include "model/llama/decoder.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "base/parallel.h"
#include "base/str.h"
#include "model/llama/load_weights.h"
#include "model/llama/parameters.h"
#include "model/llama/rope_table.h"

namespace cria::model {
namespace {

constexpr const char* kHead = "lm_head.weight";

// Weights are read and packed this many bytes at a time.
constexpr int64_t kReadBytes = 16 << 20;
constexpr int64_t kReadBlocks = 16;

int64_t QkvDim(const LlamaConfig& config) { return config.QDim() + 2 * config.KvDim(); }

StDtype FileType(DType type) { return type == DType::kBF16 ? StDtype::kBF16 : StDtype::kF32; }

// Hands a weight's rows, as `type`, to `use(first row, rows)`, some at a time. Read on all threads.
template <typename Use>
Status ReadInParts(const WeightSource& source, const std::string& name, DType type,
                   std::vector<char>* buffer, const Use& use) {
  const WeightInfo& info = *source.Find(name);
  const int64_t row_bytes = info.columns() * DTypeBytes(type);
  const int64_t rows_at_once = std::max<int64_t>(kReadBytes / row_bytes, 1);
  const int64_t rows_per_block = (rows_at_once + kReadBlocks - 1) / kReadBlocks;
  for (int64_t begin = 0; begin < info.rows(); begin += rows_at_once) {
    const int64_t end = std::min(info.rows(), begin + rows_at_once);
    buffer->resize(std::max(buffer->size(), static_cast<size_t>((end - begin) * row_bytes)));
    Status results[kReadBlocks];
    ParallelFor(kReadBlocks, [&](int64_t block) {
      const int64_t first = begin + block * rows_per_block;
      const int64_t last = std::min(end, first + rows_per_block);
      if (first >= last) return;
      results[block] = source.ReadRows(info, first, last, FileType(type),
                                       buffer->data() + (first - begin) * row_bytes);
    });
    for (const Status& result : results) CRIA_RETURN_IF_ERROR(result);
    use(begin, Tensor(buffer->data(), type, {end - begin, info.columns()}));
  }
  return OkStatus();
}

// One sequence's part of a cache.
Tensor OfSequence(const Tensor& cache, int64_t sequence) {
  const Tensor row = cache.Rows(sequence, sequence + 1);
  return row.View({row.num_elements()});
}

}  // namespace

LlamaDecoder::Buffers LlamaDecoder::Allocate(const LlamaConfig& config,
                                             const DecoderOptions& options, const Ops& ops,
                                             Arena* arena) {
  const DType type = options.type;
  const auto packed = [&](int64_t n, int64_t k) {
    return arena->Alloc(type, {ops.PackedElements(type, n, k)});
  };
  const auto fp32 = [&](std::initializer_list<int64_t> dims) {
    return arena->Alloc(DType::kF32, dims);
  };
  const int64_t cache_elements =
      ops.CacheElements(options.max_positions, config.kv_heads, config.HeadDim());
  const int64_t rows = options.max_rows;
  Buffers b;
  b.embedding = packed(config.vocab, config.dim);
  if (!config.tied_head) b.head = packed(config.vocab, config.dim);
  b.final_norm = fp32({config.dim});
  for (int64_t i = 0; i < config.layers; ++i) {
    b.layers.push_back({.attention_norm = fp32({config.dim}),
                        .ffn_norm = fp32({config.dim}),
                        .qkv = packed(QkvDim(config), config.dim),
                        .out = packed(config.dim, config.QDim()),
                        .gate_up = packed(2 * config.ffn, config.dim),
                        .down = packed(config.dim, config.ffn),
                        .keys = arena->Alloc(type, {options.max_sequences, cache_elements}),
                        .values = arena->Alloc(type, {options.max_sequences, cache_elements})});
  }
  b.cosines = fp32({options.max_positions, config.HeadDim() / 2});
  b.sines = fp32({options.max_positions, config.HeadDim() / 2});
  b.tokens = arena->Alloc(DType::kI32, {rows});
  b.positions = arena->Alloc(DType::kI32, {rows});
  b.doc_start = arena->Alloc(DType::kI32, {rows});
  b.x = fp32({rows, config.dim});
  b.normed = arena->Alloc(type, {rows, config.dim});
  b.rstd = fp32({rows});
  b.qkv = arena->Alloc(type, {rows, QkvDim(config)});
  b.attention = arena->Alloc(type, {rows, config.QDim()});
  b.lse = fp32({rows * config.heads});
  b.delta = arena->Alloc(type, {rows, config.dim});
  b.gate_up = arena->Alloc(type, {rows, 2 * config.ffn});
  b.act = arena->Alloc(type, {rows, config.ffn});
  b.wanted = arena->Alloc(type, {options.max_logits, config.dim});
  b.logits = fp32({options.max_logits, config.vocab});
  return b;
}

int64_t LlamaDecoder::PlanBytes(const LlamaConfig& config, const DecoderOptions& options,
                                const Ops& ops) {
  Arena arena = Arena::Planning();
  Allocate(config, options, ops, &arena);
  return arena.used_bytes();
}

LlamaDecoder::LlamaDecoder(const LlamaConfig& config, const DecoderOptions& options, Ops* ops)
    : config_(config),
      options_(options),
      ops_(ops),
      arena_(PlanBytes(config, options, *ops)),
      b_(Allocate(config, options, *ops, &arena_)),
      lengths_(static_cast<size_t>(options.max_sequences), 0) {
  FillRopeTable(config_, b_.cosines, b_.sines);
  ops_->Zero(b_.doc_start);  // a sequence is one document
}

StatusOr<std::unique_ptr<LlamaDecoder>> LlamaDecoder::Load(const LlamaConfig& config,
                                                           const DecoderOptions& options,
                                                           const WeightSource& source, Ops* ops) {
  CRIA_RETURN_IF_ERROR(Validate(config, source.path()));
  std::unique_ptr<LlamaDecoder> decoder(new LlamaDecoder(config, options, ops));
  CRIA_RETURN_IF_ERROR(decoder->ReadWeights(source));
  return decoder;
}

Status LlamaDecoder::ReadWeights(const WeightSource& source) {
  CRIA_RETURN_IF_ERROR(CheckWeights(source, ParameterLayout(config_)));
  std::vector<char> buffer;
  // A norm is copied; a matrix becomes rows of a packed one.
  const auto norm = [&](const std::string& name, const Tensor& to) {
    return ReadInParts(source, name, DType::kF32, &buffer, [&](int64_t begin, const Tensor& rows) {
      const int64_t n = rows.dim(0);
      ops_->Copy(rows.View({n}), to.Rows(begin, begin + n));
    });
  };
  const auto matrix = [&](const std::string& name, const Tensor& packed, int64_t first_row) {
    return ReadInParts(source, name, options_.type, &buffer,
                       [&](int64_t begin, const Tensor& rows) {
                         ops_->PackWeight({rows, packed, first_row + begin});
                       });
  };
  CRIA_RETURN_IF_ERROR(matrix("model.embed_tokens.weight", b_.embedding, 0));
  CRIA_RETURN_IF_ERROR(norm("model.norm.weight", b_.final_norm));
  if (!config_.tied_head) CRIA_RETURN_IF_ERROR(matrix(kHead, b_.head, 0));
  for (int64_t i = 0; i < config_.layers; ++i) {
    const Layer& layer = b_.layers[static_cast<size_t>(i)];
    const std::string at = StrCat("model.layers.", i, ".");
    const int64_t q = config_.QDim(), kv = config_.KvDim();
    CRIA_RETURN_IF_ERROR(norm(at + "input_layernorm.weight", layer.attention_norm));
    CRIA_RETURN_IF_ERROR(norm(at + "post_attention_layernorm.weight", layer.ffn_norm));
    CRIA_RETURN_IF_ERROR(matrix(at + "self_attn.q_proj.weight", layer.qkv, 0));
    CRIA_RETURN_IF_ERROR(matrix(at + "self_attn.k_proj.weight", layer.qkv, q));
    CRIA_RETURN_IF_ERROR(matrix(at + "self_attn.v_proj.weight", layer.qkv, q + kv));
    CRIA_RETURN_IF_ERROR(matrix(at + "self_attn.o_proj.weight", layer.out, 0));
    CRIA_RETURN_IF_ERROR(matrix(at + "mlp.gate_proj.weight", layer.gate_up, 0));
    CRIA_RETURN_IF_ERROR(matrix(at + "mlp.up_proj.weight", layer.gate_up, config_.ffn));
    CRIA_RETURN_IF_ERROR(matrix(at + "mlp.down_proj.weight", layer.down, 0));
  }
  return OkStatus();
}

// One layer's part of the residual: attention and MLP, each added to x by the norm that follows.
void LlamaDecoder::RunLayer(const Layer& layer, std::span<const Piece> pieces, int64_t rows) {
  const int64_t q_dim = config_.QDim(), kv_dim = config_.KvDim();
  const Tensor normed = b_.normed.Rows(0, rows), delta = b_.delta.Rows(0, rows);
  const Tensor qkv = b_.qkv.Rows(0, rows), attention = b_.attention.Rows(0, rows);
  ops_->MatmulPacked({.a = normed, .packed = layer.qkv, .c = qkv});
  ops_->Rope({.x = qkv.Columns(0, q_dim + kv_dim),
              .positions = b_.positions.Rows(0, rows),
              .cosines = b_.cosines,
              .sines = b_.sines,
              .head_dim = config_.HeadDim()});
  int64_t row = 0;
  for (const Piece& piece : pieces) {
    const auto time = static_cast<int64_t>(piece.tokens.size());
    const int64_t before = lengths_[static_cast<size_t>(piece.sequence)];
    const Tensor some = qkv.Rows(row, row + time);
    const Tensor key_cache = OfSequence(layer.keys, piece.sequence);
    const Tensor value_cache = OfSequence(layer.values, piece.sequence);
    ops_->StoreKeyValues({.k = some.Columns(q_dim, q_dim + kv_dim),
                          .v = some.Columns(q_dim + kv_dim, q_dim + 2 * kv_dim),
                          .key_cache = key_cache,
                          .value_cache = value_cache,
                          .first = before,
                          .kv_heads = config_.kv_heads,
                          .head_dim = config_.HeadDim()});
    ops_->AttentionForward(
        {.q = some.Columns(0, q_dim),
         .doc_start = b_.doc_start.Rows(row, row + time),
         .out = attention.Rows(row, row + time),
         .lse = b_.lse.Rows(row * config_.heads, (row + time) * config_.heads),
         .batch = 1,
         .time = time,
         .heads = config_.heads,
         .kv_heads = config_.kv_heads,
         .head_dim = config_.HeadDim(),
         .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_.HeadDim()))),
         .keys = before + time,
         .key_cache = key_cache,
         .value_cache = value_cache});
    row += time;
  }
  ops_->MatmulPacked({.a = attention, .packed = layer.out, .c = delta});
  const Tensor x = b_.x.Rows(0, rows);
  ops_->RmsNormForward({.x = x,
                        .delta = delta,
                        .sum = x,
                        .weight = layer.ffn_norm,
                        .y = normed,
                        .rstd = b_.rstd.Rows(0, rows),
                        .eps = static_cast<float>(config_.norm_eps)});
  const Tensor gate_up = b_.gate_up.Rows(0, rows), act = b_.act.Rows(0, rows);
  ops_->MatmulPacked({.a = normed, .packed = layer.gate_up, .c = gate_up});
  ops_->SwigluForward({.gate_up = gate_up, .act = act});
  ops_->MatmulPacked({.a = act, .packed = layer.down, .c = delta});
}

int64_t LlamaDecoder::PlaceTokens(std::span<const Piece> pieces) {
  int64_t rows = 0;
  for (const Piece& piece : pieces) {
    const auto time = static_cast<int64_t>(piece.tokens.size());
    CRIA_CHECK(piece.sequence >= 0 && piece.sequence < options_.max_sequences, "sequence ",
               piece.sequence, " of ", options_.max_sequences);
    const int64_t before = length(piece.sequence);
    CRIA_CHECK(time > 0 && before + time <= options_.max_positions, time, " tokens after ", before,
               " in a sequence of at most ", options_.max_positions);
    CRIA_CHECK(rows + time <= options_.max_rows, "more than ", options_.max_rows, " tokens a call");
    for (int64_t i = 0; i < time; ++i) {
      const int32_t token = piece.tokens[static_cast<size_t>(i)];
      CRIA_CHECK(token >= 0 && token < config_.vocab, "token ", token, " of a vocabulary of ",
                 config_.vocab);
      b_.tokens.i32()[rows + i] = token;
      b_.positions.i32()[rows + i] = static_cast<int32_t>(before + i);
    }
    rows += time;
  }
  return rows;
}

Tensor LlamaDecoder::Forward(std::span<const Piece> pieces) {
  const int64_t rows = PlaceTokens(pieces);
  const Tensor x = b_.x.Rows(0, rows), normed = b_.normed.Rows(0, rows);
  ops_->PackedEmbedding({.tokens = b_.tokens.Rows(0, rows), .packed = b_.embedding, .out = x});
  RmsNormForwardArgs norm = {.x = x,
                             .weight = b_.layers[0].attention_norm,
                             .y = normed,
                             .rstd = b_.rstd.Rows(0, rows),
                             .eps = static_cast<float>(config_.norm_eps)};
  for (size_t i = 0; i < b_.layers.size(); ++i) {
    norm.weight = b_.layers[i].attention_norm;
    ops_->RmsNormForward(norm);
    RunLayer(b_.layers[i], pieces, rows);
    norm.delta = b_.delta.Rows(0, rows);
    norm.sum = x;
  }
  for (const Piece& piece : pieces) {
    lengths_[static_cast<size_t>(piece.sequence)] += static_cast<int64_t>(piece.tokens.size());
  }
  norm.weight = b_.final_norm;
  ops_->RmsNormForward(norm);
  return Logits(pieces);
}

Tensor LlamaDecoder::Logits(std::span<const Piece> pieces) {
  int64_t row = 0, wanted = 0;
  for (const Piece& piece : pieces) {
    const auto time = static_cast<int64_t>(piece.tokens.size());
    const int64_t some = piece.want == Want::kAll ? time : piece.want == Want::kLast ? 1 : 0;
    CRIA_CHECK(wanted + some <= options_.max_logits, "logits wanted for more than ",
               options_.max_logits, " tokens");
    row += time;
    if (some > 0) {
      ops_->Copy(b_.normed.Rows(row - some, row), b_.wanted.Rows(wanted, wanted + some));
    }
    wanted += some;
  }
  if (wanted == 0) return {};
  const Tensor logits = b_.logits.Rows(0, wanted);
  ops_->MatmulPacked({.a = b_.wanted.Rows(0, wanted),
                      .packed = config_.tied_head ? b_.embedding : b_.head,
                      .c = logits});
  return logits;
}

void LlamaDecoder::Append(int64_t sequence, std::span<const int32_t> tokens) {
  while (!tokens.empty()) {
    const size_t some = std::min(tokens.size(), static_cast<size_t>(options_.max_rows));
    Forward({{.sequence = sequence, .tokens = tokens.first(some), .want = Want::kNone}});
    tokens = tokens.subspan(some);
  }
}

void LlamaDecoder::Truncate(int64_t sequence, int64_t length) {
  int64_t& current = lengths_[static_cast<size_t>(sequence)];
  CRIA_CHECK(length >= 0 && length <= current, "to ", length, " of ", current, " tokens");
  current = length;
}

void LlamaDecoder::CopySequence(int64_t from, int64_t to) {
  if (from == to) return;
  for (const Layer& layer : b_.layers) {
    ops_->Copy(OfSequence(layer.keys, from), OfSequence(layer.keys, to));
    ops_->Copy(OfSequence(layer.values, from), OfSequence(layer.values, to));
  }
  lengths_[static_cast<size_t>(to)] = length(from);
}

}  // namespace cria::model
