#include "model/parallel/context_parallel.h"

#include "base/check.h"

namespace cria::model {
namespace {

// Calls body(rows in rank order, rows in sequence order) for each chunk of each sequence.
template <typename Body>
void ForChunks(int cp, int64_t batch, int64_t time, const Tensor& ranks, const Tensor& sequences,
               const Body& body) {
  const int64_t rows_of_rank = batch * time / cp;
  for (int rank = 0; rank < cp; ++rank) {
    for (const ContextSpan& span : SpansOf(cp, rank, batch, time)) {
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t from = rank * rows_of_rank + span.row + b * span.time;
        const int64_t to = b * time + span.first;
        body(ranks.Rows(from, from + span.time), sequences.Rows(to, to + span.time));
      }
    }
  }
}

}  // namespace

std::vector<ContextSpan> SpansOf(int cp, int cp_rank, int64_t batch, int64_t time) {
  if (cp == 1) return {{.row = 0, .first = 0, .time = time}};
  CRIA_CHECK_EQ(time % (2 * cp), 0);
  const int64_t chunk = time / (2 * cp);
  return {{.row = 0, .first = cp_rank * chunk, .time = chunk},
          {.row = batch * chunk, .first = (2 * cp - 1 - cp_rank) * chunk, .time = chunk}};
}

void FromRankOrder(Ops* ops, int cp, int64_t batch, int64_t time, const Tensor& ranks,
                   const Tensor& sequences) {
  ForChunks(cp, batch, time, ranks, sequences,
            [&](const Tensor& from, const Tensor& to) { ops->Copy(from, to); });
}

void ToRankOrder(Ops* ops, int cp, int64_t batch, int64_t time, const Tensor& sequences,
                 const Tensor& ranks) {
  ForChunks(cp, batch, time, ranks, sequences,
            [&](const Tensor& to, const Tensor& from) { ops->Copy(from, to); });
}

}  // namespace cria::model
