// Sequences split over ranks: 2 cp chunks, rank i holds chunks i and 2 cp - 1 - i, so that each has
// the same share of the causal triangle.
//
//   CP = 2, four chunks of a sequence:   0 1 2 3      rank 0: 0 3, rank 1: 1 2
//
// A rank's rows of a batch are its first chunk of each sequence, then its second one of each: both
// halves are contiguous, and each is a stretch of queries that starts at one place in all
// sequences. Pure functions and copies. Thread-safe. Source: Llama 3 (arXiv 2407.21783),
// section 3.3.2.

#ifndef CRIA_MODEL_PARALLEL_CONTEXT_PARALLEL_H_
#define CRIA_MODEL_PARALLEL_CONTEXT_PARALLEL_H_

#include <cstdint>
#include <vector>

#include "model/ops.h"
#include "model/tensor.h"

namespace cria::model {

// Rows [row, row + batch * time) of a rank's batch: tokens [first, first + time) of each sequence.
struct ContextSpan {
  int64_t row = 0;
  int64_t first = 0;
  int64_t time = 0;
};

// One span without context parallelism, two with it; `time` is a multiple of 2 cp then.
std::vector<ContextSpan> SpansOf(int cp, int cp_rank, int64_t batch, int64_t time);

// Between the order of sequences, [batch * time, C], and that of ranks, [cp, batch * time / cp, C],
// as an all-gather leaves it.
void FromRankOrder(Ops* ops, int cp, int64_t batch, int64_t time, const Tensor& ranks,
                   const Tensor& sequences);
void ToRankOrder(Ops* ops, int cp, int64_t batch, int64_t time, const Tensor& sequences,
                 const Tensor& ranks);

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_CONTEXT_PARALLEL_H_
