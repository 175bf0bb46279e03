// Causal, document-masked, grouped-query attention in tiles, after FlashAttention-2 (Dao, 2023):
// scores exist only as a kAttentionTile x kAttentionTile tile; the forward pass keeps a running
// maximum and sum per row and saves their log-sum-exp, from which the backward pass computes the
// probabilities again.
//
//              keys ->
//   queries    #              # = a tile that is computed
//      |       # #
//      v       # # #
//              # # # #
//
// The queries may be a stretch of a sequence: a row gives the same bits alone as among all, for its
// tiles of keys begin at the same places, and what is masked adds exact zeros. Tiles of queries,
// too, begin at multiples of kAttentionTile in the sequence, so that few tiles straddle the
// diagonal.
//
// An item of the forward pass is a chunk of kAttentionChunk queries of one head: tiles of K and V
// are converted to fp32 (and K transposed) once for the whole chunk. An item of the backward pass
// is a kv head of a sequence: it alone adds to its dK and dV, in a fixed order.
//
// Tiles beyond the diagonal, or wholly before each row's document, are not computed.

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "model/cpu/kernels_isa.h"
#include "model/cpu/tile_matmul.h"

namespace cria::model::cpu::CRIA_ISA {
namespace {

constexpr int64_t kTile = kAttentionTile;

// Rows that are done at once of a tile on the diagonal, where each sees only the keys up to its
// own: 24 + 24 + 16 rows leave out a third of the tile's work.
constexpr int64_t kDiagonalRows = 24;

// Columns of scores are computed in pairs of vectors.
int64_t RoundColumns(int64_t n) { return (n + 2 * kLanes - 1) / (2 * kLanes) * (2 * kLanes); }

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

// to's rows += rows of fp32.
void AddRows(const float* from, int64_t padded, const Tensor& to, int64_t row, int64_t rows,
             int64_t column, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = from + r * padded;
    float* y = to.f32() + (row + r) * to.stride(0) + column;
    ForVectors(
        columns, [&](int64_t i) { Store(y + i, Load(y + i) + Load(x + i)); },
        [&](int64_t i, int64_t n) {
          for (int64_t j = i; j < i + n; ++j) y[j] += x[j];
        });
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

// The first row of the next tile, of rows that begin with token `first` of their sequence.
int64_t NextTile(int64_t first, int64_t row) {
  return (first + row) / kTile * kTile + kTile - first;
}

// What a row of a tile sees of it: keys [first, last) of the tile.
struct Visible {
  int64_t first, last;
};
Visible VisibleKeys(int64_t query, int64_t doc_start, int64_t key_begin, int64_t keys) {
  return {.first = std::clamp<int64_t>(doc_start - key_begin, 0, keys),
          .last = std::clamp<int64_t>(query + 1 - key_begin, 0, keys)};
}

// Of the first `columns` scores, those outside [first, last) become -infinity.
void MaskRow(float* scores, Visible visible, int64_t columns) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  for (int64_t j = 0; j < visible.first; ++j) scores[j] = kMinusInfinity;
  for (int64_t j = visible.last; j < columns; ++j) scores[j] = kMinusInfinity;
}

float ScoreMax(const float* scores, int64_t columns) {
  Vec max = Load(scores);
  for (int64_t j = kLanes; j < columns; j += kLanes) max = Max(Load(scores + j), max);
  return MaxLanes(max);
}

// scores = exp(scale * scores - base); returns their sum.
float ExpRow(float* scores, float scale, float base, int64_t columns) {
  Vec sum{};
  for (int64_t j = 0; j < columns; j += kLanes) {
    const Vec p = Exp(Load(scores + j) * scale - base);
    Store(scores + j, p);
    sum += p;
  }
  return SumLanes(sum);
}

void ScaleRow(float* x, float factor, int64_t padded) {
  for (int64_t j = 0; j < padded; j += kLanes) Store(x + j, Load(x + j) * factor);
}

// The chunk's queries [begin, begin + rows) of one head against all keys they see.
class ForwardChunk {
 public:
  ForwardChunk(const AttentionForwardArgs& op, float* scratch, int64_t item)
      : op_(op), keys_(op.keys > 0 ? op.keys : op.time), padded_(AttentionPad(op.head_dim)) {
    const int64_t chunks = (op.time + kAttentionChunk - 1) / kAttentionChunk;
    const int64_t chunk = item % chunks;
    head_ = item / chunks % op.heads;
    sequence_ = item / chunks / op.heads;
    first_ = chunk * kAttentionChunk;
    begin_ = (op.key_cache.defined() ? keys_ - op.time : op.first_query) + first_;
    rows_ = std::min(kAttentionChunk, op.time - first_);
    q_ = scratch;
    out_ = q_ + kAttentionChunk * padded_;
    k_ = out_ + kAttentionChunk * padded_;
    kt_ = own_kt_ = k_ + kTile * padded_;
    v_ = own_v_ = own_kt_ + kTile * padded_;
    v_stride_ = padded_;
    scores_ = own_v_ + kTile * padded_;
    max_ = scores_ + kTile * kTile;
    sum_ = max_ + kAttentionChunk;
  }

  void Run() {
    const int64_t first_row = sequence_ * op_.time + first_;
    const int64_t first_key = sequence_ * keys_;
    const int32_t* doc_start = op_.doc_start.i32() + first_row;
    LoadRows(op_.q, first_row, rows_, head_ * op_.head_dim, op_.head_dim, q_, padded_);
    std::fill_n(out_, rows_ * padded_, 0.0f);
    std::fill_n(max_, rows_, -std::numeric_limits<float>::infinity());
    std::fill_n(sum_, rows_, 0.0f);
    const int64_t kv_column = head_ / (op_.heads / op_.kv_heads) * op_.head_dim;
    const int64_t oldest = *std::min_element(doc_start, doc_start + rows_);
    for (int64_t key = oldest / kTile * kTile; key < begin_ + rows_; key += kTile) {
      const int64_t keys = std::min(kTile, begin_ + rows_ - key);
      if (op_.key_cache.defined()) {
        UseCache(key, keys, kv_column);
      } else {
        LoadRows(op_.k, first_key + key, keys, kv_column, op_.head_dim, k_, padded_);
        Transpose(k_, keys, op_.head_dim, padded_, own_kt_);
        LoadRows(op_.v, first_key + key, keys, kv_column, op_.head_dim, own_v_, padded_);
      }
      for (int64_t row = 0; row < rows_;) {
        const int64_t next = std::min(rows_, NextTile(begin_, row));
        Tile(row, next - row, key, keys, doc_start);
        row = next;
      }
    }
    float* lse = op_.lse.f32() + (sequence_ * op_.heads + head_) * op_.time + first_;
    for (int64_t row = 0; row < rows_; ++row) {
      ScaleRow(out_ + row * padded_, 1.0f / sum_[row], padded_);
      lse[row] = max_[row] + std::log(sum_[row]);
    }
    StoreRows(out_, padded_, op_.out, first_row, rows_, head_ * op_.head_dim, op_.head_dim);
  }

 private:
  // Tiles of the cache. fp32 is read where it is; bf16 too when it would be read only a few times.
  void UseCache(int64_t key, int64_t keys, int64_t kv_column) {
    constexpr int64_t kFewRows = 4;
    const bool few = rows_ <= kFewRows;
    const int64_t size = op_.head_dim * kTile;
    const int64_t tile = (key / kTile * op_.kv_heads + kv_column / op_.head_dim) * size;
    if (op_.key_cache.dtype() == DType::kF32) {
      kt_ = op_.key_cache.f32() + tile;
      v_ = op_.value_cache.f32() + tile;
    } else if (few) {
      kt_ = v_ = nullptr;
      low_kt_ = op_.key_cache.bf16() + tile;
      low_v_ = op_.value_cache.bf16() + tile;
    } else {
      const BF16* from = op_.key_cache.bf16() + tile;
      for (int64_t i = 0; i < size; i += kLanes) Store(own_kt_ + i, Load(from + i));
    }
    v_stride_ = op_.head_dim;
    if (op_.head_dim == padded_ && (v_ != own_v_)) return;
    // Rows that are no whole vectors, or too many queries for bf16.
    const Tensor rows = op_.value_cache.Rows(tile, tile + size).View({kTile, op_.head_dim});
    LoadRows(rows, 0, keys, 0, op_.head_dim, own_v_, padded_);
    v_ = own_v_;
    v_stride_ = padded_;
  }

  void Tile(int64_t row, int64_t rows, int64_t key, int64_t keys, const int32_t* doc_start) {
    const int64_t query = begin_ + row;
    if (key > query) return;  // beyond the diagonal
    // Documents only move forward: the first row's document is the oldest of the tile.
    if (doc_start[row] >= key + keys) return;
    if (key + kTile <= query) {
      Rows(row, rows, key, keys, doc_start);
      return;
    }
    for (int64_t r = 0; r < rows; r += kDiagonalRows) {
      const int64_t some = std::min(kDiagonalRows, rows - r);
      Rows(row + r, some, key, std::min(keys, query + r + some - key), doc_start);
    }
  }

  // Rows of the chunk against keys of the tile in k and v.
  void Rows(int64_t row, int64_t rows, int64_t key, int64_t keys, const int32_t* doc_start) {
    const int64_t query = begin_ + row;
    const int64_t columns = RoundColumns(keys);
    TileMatmul({.a = q_ + row * padded_,
                .a_row_stride = padded_,
                .a_column_stride = 1,
                .b = kt_,
                .b_low = low_kt_,
                .b_stride = kTile,
                .c = scores_,
                .c_stride = kTile,
                .m = rows,
                .n = columns,
                .k = op_.head_dim,
                .accumulate = false});
    for (int64_t r = 0; r < rows; ++r) {
      const Visible visible = VisibleKeys(query + r, doc_start[row + r], key, keys);
      if (visible.first > 0 || visible.last < columns) {
        MaskRow(scores_ + r * kTile, visible, columns);
      }
    }
    Softmax(row, rows, columns);
    TileMatmul({.a = scores_,
                .a_row_stride = kTile,
                .a_column_stride = 1,
                .b = v_,
                .b_low = low_v_,
                .b_stride = v_stride_,
                .c = out_ + row * padded_,
                .c_stride = padded_,
                .m = rows,
                .n = padded_,
                .k = keys,
                .accumulate = true});
  }

  // Scores become exp(scale * score - running maximum); what was summed before is scaled to the new
  // maximum.
  void Softmax(int64_t row, int64_t rows, int64_t columns) {
    constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
    alignas(64) float base[kTile] = {}, factor[kTile] = {};
    for (int64_t r = 0; r < rows; ++r) {
      const float max = ScoreMax(scores_ + r * kTile, columns) * op_.scale;
      base[r] = std::max(max_[row + r], max);
      factor[r] = max_[row + r];
      max_[row + r] = base[r];
      // Nothing seen so far: exp(-infinity - 0) is 0, as it should be.
      if (base[r] == kMinusInfinity) base[r] = 0;
    }
    for (int64_t r = 0; r < rows; r += kLanes) {
      Store(factor + r, Exp(Load(factor + r) - Load(base + r)));
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float sum = ExpRow(scores_ + r * kTile, op_.scale, base[r], columns);
      sum_[row + r] = sum_[row + r] * factor[r] + sum;
      if (factor[r] != 1.0f) ScaleRow(out_ + (row + r) * padded_, factor[r], padded_);
    }
  }

  const AttentionForwardArgs& op_;
  const int64_t keys_;  // of the sequence
  const int64_t padded_;
  // The chunk's first row among the queries, and the same token's place in the sequence.
  int64_t first_, begin_;
  int64_t head_, sequence_, rows_;
  float *q_, *out_, *k_, *own_kt_, *own_v_, *scores_, *max_, *sum_;
  // The tile's keys, transposed, and values: in scratch or in the cache, there also in bf16.
  const float *kt_, *v_;
  const BF16 *low_kt_ = nullptr, *low_v_ = nullptr;
  int64_t v_stride_;
};

// A kv head of a sequence: its dK and dV, and the dQ of the query heads that share it.
class BackwardHead {
 public:
  BackwardHead(const AttentionBackwardArgs& op, float* scratch, int64_t item)
      : op_(op),
        fwd_(op.forward),
        all_keys_(op.forward.keys > 0 ? op.forward.keys : op.forward.time),
        padded_(AttentionPad(op.forward.head_dim)) {
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
    const int64_t first_row = sequence_ * time, first_key = sequence_ * all_keys_;
    const int64_t kv_column = kv_head_ * dim;
    for (int64_t g = 0; g < group_; ++g) LoadQueries(g);
    std::fill_n(dq_, group_ * time * padded_, 0.0f);
    const int32_t* doc_start = fwd_.doc_start.i32() + first_row;
    for (int64_t key = 0; key < all_keys_; key += kTile) {
      const int64_t keys = std::min(kTile, all_keys_ - key);
      // The first query that may see one of them; all later ones are in its document or later ones.
      const int64_t first = std::max<int64_t>(key - fwd_.first_query, 0);
      const bool seen = first < time && doc_start[first] < key + keys;
      if (!seen && op_.accumulate) continue;
      std::fill_n(dk_, keys * padded_, 0.0f);
      std::fill_n(dv_, keys * padded_, 0.0f);
      if (seen) {
        LoadRows(fwd_.v, first_key + key, keys, kv_column, dim, k_, padded_);
        Transpose(k_, keys, dim, padded_, vt_);
        LoadRows(fwd_.k, first_key + key, keys, kv_column, dim, k_, padded_);
        Transpose(k_, keys, dim, padded_, kt_);
        for (int64_t g = 0; g < group_; ++g) KeyTile(g, first, key, keys, doc_start);
      }
      const auto store = op_.accumulate ? AddRows : StoreRows;
      store(dk_, padded_, op_.dk, first_key + key, keys, kv_column, dim);
      store(dv_, padded_, op_.dv, first_key + key, keys, kv_column, dim);
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

  // What the rows from `row` on of a query head give to and take from a tile of keys.
  void KeyTile(int64_t g, int64_t row, int64_t key, int64_t keys, const int32_t* doc_start) {
    while (row < fwd_.time && doc_start[row] < key + keys) {
      const int64_t next = std::min(fwd_.time, NextTile(fwd_.first_query, row));
      Tile(g, row, next - row, key, keys, doc_start);
      row = next;
    }
  }

  void Tile(int64_t g, int64_t row, int64_t rows, int64_t key, int64_t keys,
            const int32_t* doc_start) {
    // On the diagonal, rows see the keys up to their own only, and keys the rows from their own on.
    const int64_t own = fwd_.first_query + row - key;  // the first row's own key in the tile
    const bool diagonal = own < kTile;
    const int64_t step = diagonal ? kDiagonalRows : kTile;
    for (int64_t r = 0; r < rows; r += step) {
      const int64_t some = std::min(step, rows - r);
      QueryGradient(g, row, r, some, key, diagonal ? std::min(keys, own + r + some) : keys,
                    doc_start);
    }
    // Rows from `first` on have p and ds of at least these keys.
    for (int64_t first = 0, k = 0; first < rows && k < keys; first += step) {
      const int64_t next = std::min(keys, own + std::min(rows, first + step));
      KeyGradient(g, row, first, rows, k, next - k);
      k = next;
    }
  }

  // Probabilities p and gradients of scores ds of rows [r, r + rows) of the tile at `row`, and what
  // they add to dQ.
  void QueryGradient(int64_t g, int64_t row, int64_t r, int64_t rows, int64_t key, int64_t keys,
                     const int32_t* doc_start) {
    const int64_t at = g * fwd_.time + row + r;
    const int64_t columns = RoundColumns(keys);
    float* p = p_ + r * kTile;
    float* ds = ds_ + r * kTile;
    TileMatmul({.a = q_ + at * padded_,
                .a_row_stride = padded_,
                .a_column_stride = 1,
                .b = kt_,
                .b_stride = kTile,
                .c = p,
                .c_stride = kTile,
                .m = rows,
                .n = columns,
                .k = fwd_.head_dim,
                .accumulate = false});
    TileMatmul({.a = dout_ + at * padded_,
                .a_row_stride = padded_,
                .a_column_stride = 1,
                .b = vt_,
                .b_stride = kTile,
                .c = ds,
                .c_stride = kTile,
                .m = rows,
                .n = columns,
                .k = fwd_.head_dim,
                .accumulate = false});
    const float* lse =
        fwd_.lse.f32() + (sequence_ * fwd_.heads + kv_head_ * group_) * fwd_.time + at;
    for (int64_t i = 0; i < rows; ++i, p += kTile, ds += kTile) {
      const int64_t query = row + r + i;
      const Visible visible = VisibleKeys(fwd_.first_query + query, doc_start[query], key, keys);
      if (visible.first > 0 || visible.last < columns) MaskRow(p, visible, columns);
      const float delta = delta_[at + i];
      for (int64_t j = 0; j < columns; j += kLanes) {
        const Vec probability = Exp(Load(p + j) * fwd_.scale - lse[i]);
        Store(p + j, probability);
        Store(ds + j, probability * (Load(ds + j) - delta) * fwd_.scale);
      }
    }
    TileMatmul({.a = ds_ + r * kTile,
                .a_row_stride = kTile,
                .a_column_stride = 1,
                .b = k_,
                .b_stride = padded_,
                .c = dq_ + at * padded_,
                .c_stride = padded_,
                .m = rows,
                .n = padded_,
                .k = keys,
                .accumulate = true});
  }

  // What rows [first, last) of the tile at `row` add to dK and dV of keys [k, k + keys) of the
  // tile.
  void KeyGradient(int64_t g, int64_t row, int64_t first, int64_t last, int64_t k, int64_t keys) {
    const int64_t at = (g * fwd_.time + row + first) * padded_;
    const auto add = [&](const float* scores, const float* rows, float* to) {
      TileMatmul({.a = scores + first * kTile + k,
                  .a_row_stride = 1,
                  .a_column_stride = kTile,
                  .b = rows + at,
                  .b_stride = padded_,
                  .c = to + k * padded_,
                  .c_stride = padded_,
                  .m = keys,
                  .n = padded_,
                  .k = last - first,
                  .accumulate = true});
    };
    add(p_, dout_, dv_);
    add(ds_, q_, dk_);
  }

  const AttentionBackwardArgs& op_;
  const AttentionForwardArgs& fwd_;
  const int64_t all_keys_;  // of the sequence
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

// Keys: [position / kTile][kv head][K][kTile]. Values: [position / kTile][kv head][kTile][K].
void StoreKeyValues(const StoreKeyValuesArgs& args, int64_t begin, int64_t end) {
  const int64_t dim = args.head_dim, kv_dim = args.kv_heads * dim;
  WithType(args.k, [&](auto* all_k) {
    using Element = std::remove_pointer_t<decltype(all_k)>;
    const auto* all_v = static_cast<const Element*>(args.v.data());
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = args.first + row;
      const int64_t tile = position / kTile * kTile * kv_dim, place = position % kTile;
      const Element* k = all_k + row * args.k.stride(0);
      const Element* v = all_v + row * args.v.stride(0);
      Element* keys = static_cast<Element*>(args.key_cache.data()) + tile + place;
      for (int64_t i = 0; i < kv_dim; ++i) keys[i * kTile] = k[i];
      Element* values = static_cast<Element*>(args.value_cache.data()) + tile + place * dim;
      for (int64_t head = 0; head < args.kv_heads; ++head) {
        std::memcpy(values + head * kTile * dim, v + head * dim,
                    static_cast<size_t>(dim) * sizeof(Element));
      }
    }
  });
}

}  // namespace cria::model::cpu::CRIA_ISA
