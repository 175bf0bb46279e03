// The two orders in which files hold the rows of Q and K projections.
//
// Rotary embedding turns pairs of a head's K rows. Meta's checkpoints and llama.cpp's files pair
// neighbours, (2i, 2i + 1); Hugging Face pairs halves, (i, i + K/2). The same weights therefore
// stand in another row order; V and O are never touched, and K has kv_heads heads.
//
//   row of a head of 6:   Meta 0 1 2 3 4 5   <->   Hugging Face 0 3 1 4 2 5
//
//   to_meta[MetaRowFromHf(row, head_dim)] = hf[row]       // for each row of q_proj or k_proj
//
// Both functions are inverse to one another, stay within a head, and want an even head_dim >= 2 and
// row >= 0. Called by the readers and writers of GGUF and of Meta's layout. Thread-safe.
// Source: transformers' convert_llama_weights_to_hf.py views Meta's rows as [heads, K/2, 2] and
// swaps the last two.

#ifndef CRIA_MODEL_IO_QK_ORDER_H_
#define CRIA_MODEL_IO_QK_ORDER_H_

#include <cstdint>

namespace cria::model {

// Where Hugging Face's order has the row that Meta's order has at `row`.
inline int64_t HfRowFromMeta(int64_t row, int64_t head_dim) {
  const int64_t in_head = row % head_dim;
  return row - in_head + (in_head % 2) * (head_dim / 2) + in_head / 2;
}

// Where Meta's order has the row that Hugging Face's order has at `row`.
inline int64_t MetaRowFromHf(int64_t row, int64_t head_dim) {
  const int64_t in_head = row % head_dim;
  const int64_t half = head_dim / 2;
  return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_QK_ORDER_H_
