// Causal, document-masked, grouped-query attention in tiles, after FlashAttention-2 (Dao, 2023):
// scores exist only as a kAttentionTile x kAttentionTile tile; the forward pass keeps a running
// maximum and sum per row and saves their log-sum-exp, from which the backward pass computes the
// probabilities again.
//
//                 keys ->                     An item of the forward pass is a chunk of
//                 kAttentionChunk
//   queries   #                               queries of one head: K and V tiles are converted to
//   fp32
//      |      # #                             (and K transposed) once for the whole chunk. An item
//      of the v      # # #    # = a tile computed    backward pass is a kv head of a sequence: it
//      alone adds to
//             # # # #                         its dK and dV, in a fixed order.
//
// Tiles beyond the diagonal, or wholly before each row's document, are not computed.

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/cpu/kernels_isa.h"
#include "model/cpu/tile_matmul.h"

namespace cria::model::cpu::CRIA_ISA {
namespace {

constexpr int64_t kTile = kAttentionTile;

// to[rows, padded] = from[rows, columns] as fp32, zeros to the right.
void LoadRows(const Tensor& from, int64_t row, int64_t rows, int64_t column, int64_t columns,
              float* to, int64_t padded) {
  WithType(from, [&](auto* all) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto* x = all + (row + r) * from.stride(0) + column;
      float* y = to + r * padded;
      ForVectors(
          columns, [&](int64_t i) { Store(y + i, Load(x + i)); },
          [&](int64_t i, int64_t n) {
            for (int64_t j = i; j < i + n; ++j) y[j] = LoadOne(x + j);
          });
      for (int64_t j = columns; j < padded; ++j) y[j] = 0.0f;
    }
  });
}

// to[columns, kTile] = from[rows, padded] transposed, zeros to the right.
void Transpose(const float* from, int64_t rows, int64_t columns, int64_t padded, float* to) {
  if (rows < kTile) std::fill_n(to, columns * kTile, 0.0f);
  for (int64_t column = 0; column < columns; column += kLanes) {
    const int64_t last = std::min(columns, column + kLanes);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = column; c < last; ++c) to[c * kTile + r] = from[r * padded + c];
    }
  }
}

// Rows of fp32, converted to the tensor's type.
void StoreRows(const float* from, int64_t padded, const Tensor& to, int64_t row, int64_t rows,
               int64_t column, int64_t columns) {
  WithType(to, [&](auto* all) {
    for (int64_t r = 0; r < rows; ++r) {
      const float* x = from + r * padded;
      auto* y = all + (row + r) * to.stride(0) + column;
      ForVectors(
          columns, [&](int64_t i) { Store(y + i, Load(x + i)); },
          [&](int64_t i, int64_t n) {
            for (int64_t j = i; j < i + n; ++j) StoreOne(y + j, x[j]);
          });
    }
  });
}

// What a row of a tile sees of it: keys [first, last) of the tile.
struct Visible {
  int64_t first, last;
};
Visible VisibleKeys(int64_t query, int64_t doc_start, int64_t key_begin, int64_t keys) {
  return {.first = std::clamp<int64_t>(doc_start - key_begin, 0, keys),
          .last = std::clamp<int64_t>(query + 1 - key_begin, 0, keys)};
}

// Scores outside [first, last) become -infinity; all kTile columns of the row are defined
// afterwards.
void MaskRow(float* scores, Visible visible) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < visible.first; ++j) scores[j] = kMinusInfinity;
  for (int64_t j = visible.last; j < kTile; ++j) scores[j] = kMinusInfinity;
}

// One row of a tile in the running softmax: scores become exp(scale * s - max); returns the factor
// for what was summed before.
float SoftmaxRow(float* scores, float scale, float* running_max, float* running_sum) {
  Vec max_v = Load(scores);
  for (int64_t j = kLanes; j < kTile; j += kLanes) max_v = Max(max_v, Load(scores + j));
  const float tile_max = MaxLanes(max_v) * scale;
  const float new_max = std::max(*running_max, tile_max);
  if (new_max == -std::numeric_limits<float>::infinity()) {  // nothing seen so far
    std::fill_n(scores, kTile, 0.0f);
    return 1.0f;
  }
  const float factor = std::exp(*running_max - new_max);
  Vec sum{};
  for (int64_t j = 0; j < kTile; j += kLanes) {
    const Vec p = Exp(Load(scores + j) * scale - new_max);
    Store(scores + j, p);
    sum += p;
  }
  *running_sum = *running_sum * factor + SumLanes(sum);
  *running_max = new_max;
  return factor;
}

void ScaleRow(float* x, float factor, int64_t padded) {
  for (int64_t j = 0; j < padded; j += kLanes) Store(x + j, Load(x + j) * factor);
}

// The chunk's queries [begin, begin + rows) of one head against all keys they see.
class ForwardChunk {
 public:
  ForwardChunk(const AttentionForwardArgs& op, float* scratch, int64_t item)
      : op_(op), padded_(AttentionPad(op.head_dim)) {
    const int64_t chunks = (op.time + kAttentionChunk - 1) / kAttentionChunk;
    const int64_t chunk = item % chunks;
    head_ = item / chunks % op.heads;
    sequence_ = item / chunks / op.heads;
    begin_ = chunk * kAttentionChunk;
    rows_ = std::min(kAttentionChunk, op.time - begin_);
    q_ = scratch;
    out_ = q_ + kAttentionChunk * padded_;
    k_ = out_ + kAttentionChunk * padded_;
    kt_ = k_ + kTile * padded_;
    v_ = kt_ + kTile * padded_;
    scores_ = v_ + kTile * padded_;
    max_ = scores_ + kTile * kTile;
    sum_ = max_ + kAttentionChunk;
  }

  void Run() {
    const int64_t first_row = sequence_ * op_.time;
    const int32_t* doc_start = op_.doc_start.i32() + first_row;
    LoadRows(op_.q, first_row + begin_, rows_, head_ * op_.head_dim, op_.head_dim, q_, padded_);
    std::fill_n(out_, rows_ * padded_, 0.0f);
    std::fill_n(max_, rows_, -std::numeric_limits<float>::infinity());
    std::fill_n(sum_, rows_, 0.0f);
    const int64_t kv_column = head_ / (op_.heads / op_.kv_heads) * op_.head_dim;
    const int64_t oldest = *std::min_element(doc_start + begin_, doc_start + begin_ + rows_);
    for (int64_t key = oldest / kTile * kTile; key < begin_ + rows_; key += kTile) {
      const int64_t keys = std::min(kTile, op_.time - key);
      LoadRows(op_.k, first_row + key, keys, kv_column, op_.head_dim, k_, padded_);
      Transpose(k_, keys, op_.head_dim, padded_, kt_);
      LoadRows(op_.v, first_row + key, keys, kv_column, op_.head_dim, v_, padded_);
      for (int64_t row = 0; row < rows_; row += kTile) Tile(row, key, keys, doc_start);
    }
    float* lse = op_.lse.f32() + (sequence_ * op_.heads + head_) * op_.time + begin_;
    for (int64_t row = 0; row < rows_; ++row) {
      ScaleRow(out_ + row * padded_, 1.0f / sum_[row], padded_);
      lse[row] = max_[row] + std::log(sum_[row]);
    }
    StoreRows(out_, padded_, op_.out, first_row + begin_, rows_, head_ * op_.head_dim,
              op_.head_dim);
  }

 private:
  void Tile(int64_t row, int64_t key, int64_t keys, const int32_t* doc_start) {
    const int64_t rows = std::min(kTile, rows_ - row);
    const int64_t query = begin_ + row;
    if (key >= query + rows) return;  // beyond the diagonal
    // Documents only move forward: the first row's document is the oldest of the tile.
    if (doc_start[query] >= key + keys) return;
    TileMatmul({.a = q_ + row * padded_,
                .a_row_stride = padded_,
                .a_column_stride = 1,
                .b = kt_,
                .b_stride = kTile,
                .c = scores_,
                .c_stride = kTile,
                .m = rows,
                .n = kTile,
                .k = op_.head_dim,
                .accumulate = false});
    for (int64_t r = 0; r < rows; ++r) {
      float* scores = scores_ + r * kTile;
      const Visible visible = VisibleKeys(query + r, doc_start[query + r], key, keys);
      if (visible.first > 0 || visible.last < kTile) MaskRow(scores, visible);
      const float factor = SoftmaxRow(scores, op_.scale, &max_[row + r], &sum_[row + r]);
      if (factor != 1.0f) ScaleRow(out_ + (row + r) * padded_, factor, padded_);
    }
    TileMatmul({.a = scores_,
                .a_row_stride = kTile,
                .a_column_stride = 1,
                .b = v_,
                .b_stride = padded_,
                .c = out_ + row * padded_,
                .c_stride = padded_,
                .m = rows,
                .n = padded_,
                .k = keys,
                .accumulate = true});
  }

  const AttentionForwardArgs& op_;
  const int64_t padded_;
  int64_t head_, sequence_, begin_, rows_;
  float *q_, *out_, *k_, *kt_, *v_, *scores_, *max_, *sum_;
};

// A kv head of a sequence: its dK and dV, and the dQ of the query heads that share it.
class BackwardHead {
 public:
  BackwardHead(const AttentionBackwardArgs& op, float* scratch, int64_t item)
      : op_(op), fwd_(op.forward), padded_(AttentionPad(op.forward.head_dim)) {
    group_ = fwd_.heads / fwd_.kv_heads;
    kv_head_ = item % fwd_.kv_heads;
    sequence_ = item / fwd_.kv_heads;
    const int64_t all = group_ * fwd_.time * padded_;
    q_ = scratch;
    dout_ = q_ + all;
    dq_ = dout_ + all;
    delta_ = dq_ + all;
    k_ = delta_ + AttentionPad(group_ * fwd_.time);
    kt_ = k_ + kTile * padded_;
    vt_ = kt_ + kTile * padded_;
    dk_ = vt_ + kTile * padded_;
    dv_ = dk_ + kTile * padded_;
    p_ = dv_ + kTile * padded_;
    ds_ = p_ + kTile * kTile;
  }

  void Run() {
    const int64_t time = fwd_.time;
    const int64_t dim = fwd_.head_dim;
    const int64_t first_row = sequence_ * time;
    const int64_t kv_column = kv_head_ * dim;
    for (int64_t g = 0; g < group_; ++g) LoadQueries(g);
    std::fill_n(dq_, group_ * time * padded_, 0.0f);
    const int32_t* doc_start = fwd_.doc_start.i32() + first_row;
    for (int64_t key = 0; key < time; key += kTile) {
      const int64_t keys = std::min(kTile, time - key);
      LoadRows(fwd_.v, first_row + key, keys, kv_column, dim, k_, padded_);
      Transpose(k_, keys, dim, padded_, vt_);
      LoadRows(fwd_.k, first_row + key, keys, kv_column, dim, k_, padded_);
      Transpose(k_, keys, dim, padded_, kt_);
      std::fill_n(dk_, keys * padded_, 0.0f);
      std::fill_n(dv_, keys * padded_, 0.0f);
      for (int64_t g = 0; g < group_; ++g) {
        for (int64_t row = key; row < time; row += kTile) {
          if (doc_start[row] >= key + keys) break;  // all later rows are in later documents
          Tile(g, row, key, keys, doc_start);
        }
      }
      StoreRows(dk_, padded_, op_.dk, first_row + key, keys, kv_column, dim);
      StoreRows(dv_, padded_, op_.dv, first_row + key, keys, kv_column, dim);
    }
    for (int64_t g = 0; g < group_; ++g) {
      StoreRows(dq_ + g * time * padded_, padded_, op_.dq, first_row, time,
                (kv_head_ * group_ + g) * dim, dim);
    }
  }

 private:
  // Queries, output gradients and delta = sum(dout * out) of one query head.
  void LoadQueries(int64_t g) {
    const int64_t time = fwd_.time;
    const int64_t first_row = sequence_ * time;
    const int64_t column = (kv_head_ * group_ + g) * fwd_.head_dim;
    float* q = q_ + g * time * padded_;
    float* dout = dout_ + g * time * padded_;
    LoadRows(fwd_.q, first_row, time, column, fwd_.head_dim, q, padded_);
    LoadRows(op_.dout, first_row, time, column, fwd_.head_dim, dout, padded_);
    for (int64_t t = 0; t < time; ++t) {
      LoadRows(fwd_.out, first_row + t, 1, column, fwd_.head_dim, k_, padded_);
      Vec sum{};
      for (int64_t j = 0; j < padded_; j += kLanes) {
        sum += Load(k_ + j) * Load(dout + t * padded_ + j);
      }
      delta_[g * time + t] = SumLanes(sum);
    }
  }

  void Tile(int64_t g, int64_t row, int64_t key, int64_t keys, const int32_t* doc_start) {
    const int64_t time = fwd_.time;
    const int64_t rows = std::min(kTile, time - row);
    const float* q = q_ + (g * time + row) * padded_;
    const float* dout = dout_ + (g * time + row) * padded_;
    const float* lse =
        fwd_.lse.f32() + (sequence_ * fwd_.heads + kv_head_ * group_ + g) * time + row;
    TileMatmul({.a = q,
                .a_row_stride = padded_,
                .a_column_stride = 1,
                .b = kt_,
                .b_stride = kTile,
                .c = p_,
                .c_stride = kTile,
                .m = rows,
                .n = kTile,
                .k = fwd_.head_dim,
                .accumulate = false});
    TileMatmul({.a = dout,
                .a_row_stride = padded_,
                .a_column_stride = 1,
                .b = vt_,
                .b_stride = kTile,
                .c = ds_,
                .c_stride = kTile,
                .m = rows,
                .n = kTile,
                .k = fwd_.head_dim,
                .accumulate = false});
    for (int64_t r = 0; r < rows; ++r) {
      float* p = p_ + r * kTile;
      float* ds = ds_ + r * kTile;
      const Visible visible = VisibleKeys(row + r, doc_start[row + r], key, keys);
      if (visible.first > 0 || visible.last < kTile) MaskRow(p, visible);
      const float delta = delta_[g * time + row + r];
      for (int64_t j = 0; j < kTile; j += kLanes) {
        const Vec probability = Exp(Load(p + j) * fwd_.scale - lse[r]);
        Store(p + j, probability);
        Store(ds + j, probability * (Load(ds + j) - delta) * fwd_.scale);
      }
    }
    TileMatmul({.a = p_,
                .a_row_stride = 1,
                .a_column_stride = kTile,
                .b = dout,
                .b_stride = padded_,
                .c = dv_,
                .c_stride = padded_,
                .m = keys,
                .n = padded_,
                .k = rows,
                .accumulate = true});
    TileMatmul({.a = ds_,
                .a_row_stride = 1,
                .a_column_stride = kTile,
                .b = q,
                .b_stride = padded_,
                .c = dk_,
                .c_stride = padded_,
                .m = keys,
                .n = padded_,
                .k = rows,
                .accumulate = true});
    TileMatmul({.a = ds_,
                .a_row_stride = kTile,
                .a_column_stride = 1,
                .b = k_,
                .b_stride = padded_,
                .c = dq_ + (g * time + row) * padded_,
                .c_stride = padded_,
                .m = rows,
                .n = padded_,
                .k = keys,
                .accumulate = true});
  }

  const AttentionBackwardArgs& op_;
  const AttentionForwardArgs& fwd_;
  const int64_t padded_;
  int64_t group_, kv_head_, sequence_;
  float *q_, *dout_, *dq_, *delta_, *k_, *kt_, *vt_, *dk_, *dv_, *p_, *ds_;
};

}  // namespace

void AttentionForward(const AttentionForwardKernelArgs& args, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) ForwardChunk(args.op, args.scratch, item).Run();
}

void AttentionBackward(const AttentionBackwardKernelArgs& args, int64_t begin, int64_t end) {
  for (int64_t item = begin; item < end; ++item) BackwardHead(args.op, args.scratch, item).Run();
}

}  // namespace cria::model::cpu::CRIA_ISA
