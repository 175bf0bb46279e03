// A micro-batch of token ids, and the loss over it.

#ifndef CRIA_MODEL_LLAMA_TOKEN_BATCH_H_
#define CRIA_MODEL_LLAMA_TOKEN_BATCH_H_

#include <cstdint>

#include "model/tensor.h"

namespace cria::model {

// R rows: sequence after sequence, R = batch * time. Where sequences are split over ranks (cp > 1),
// this rank's: its first chunk of each sequence, then its second one of each, R = batch * time / cp
// (parallel/context_parallel.h makes them).
struct TokenBatch {
  int64_t batch = 0;
  int64_t time = 0;  // of the whole sequences
  Tensor tokens;     // [R] i32
  Tensor targets;    // [R] i32, negative: not counted. May be undefined where no loss is asked for.
  Tensor positions;  // [R] i32, < max_time
  Tensor doc_start;  // [R] i32, index within the sequence of the first token of the row's document
};

struct LossSum {
  double sum = 0;         // over counted tokens, without the z-loss
  int64_t num_valid = 0;  // counted tokens
};

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_TOKEN_BATCH_H_
