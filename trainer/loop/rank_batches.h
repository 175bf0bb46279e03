// The micro-batches of a step that one rank computes: its data-parallel share of the global batch,
// cut into micro-batches, and of each sequence the chunks that are this rank's.
//
//   RankBatches batches(&stream, layout, CoordinatesOf(layout, rank), {.micro_batch = 8, .seq =
//   256}); batches.Read(first_sample, batch_size); model.Train(batches.micro_batches(), ...);
//
// The shares of the dp ranks differ by at most one sequence and together are the global batch, in
// order. All of them have as many micro-batches; where a share has none left, one sequence without
// targets stands in, which adds nothing to loss or gradients. Thread-compatible.

#ifndef CRIA_TRAINER_LOOP_RANK_BATCHES_H_
#define CRIA_TRAINER_LOOP_RANK_BATCHES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "model/llama/token_batch.h"
#include "model/parallel/mesh.h"
#include "trainer/data/batch_stream.h"

namespace cria::trainer {

struct RankBatchOptions {
  int64_t micro_batch = 1;  // sequences, at most
  int64_t seq = 0;
};

// The sequences [first, first + count) of a global batch that starts at `first_sample`.
SampleRange ShareOfBatch(int64_t first_sample, int64_t batch_size, int dp, int dp_rank);
// Micro-batches of each rank in a step of `batch_size` sequences.
int NumMicroBatches(int64_t batch_size, int dp, int64_t micro_batch);

class RankBatches {
 public:
  // `stream` outlives it.
  RankBatches(const BatchStream* stream, const model::Layout& layout, const model::Coordinates& at,
              const RankBatchOptions& options);

  void Read(int64_t first_sample, int64_t batch_size);

  // Of the last Read; valid until the next.
  std::span<const model::TokenBatch> micro_batches() const { return micro_batches_; }
  // Targets that count in this rank's share, of whole sequences: the same on its tp, cp and pp
  // peers.
  int64_t num_valid() const { return batch_.num_valid; }
  const SampleRange& samples() const { return samples_; }

 private:
  // One of four arrays of the batch.
  struct Columns {
    std::vector<int32_t> tokens, targets, positions, doc_start;
  };
  void AddMicroBatch(int64_t begin, int64_t end, bool counts);
  model::TokenBatch View(Columns* columns, int64_t row, int64_t sequences) const;

  const BatchStream* const stream_;
  const model::Layout layout_;
  const model::Coordinates at_;
  const RankBatchOptions options_;
  SampleRange samples_;
  Batch batch_;
  Columns own_;  // this rank's rows, micro-batch after micro-batch
  std::vector<model::TokenBatch> micro_batches_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_RANK_BATCHES_H_
