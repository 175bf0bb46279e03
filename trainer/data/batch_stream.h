// The stream of training samples as a pure function: sample s of (data, seq, seed), whoever asks.
//
// Called by the trainer, by evaluation, and by trainer/data/audit.h.
//
//   const BatchStream stream(&dataset, {.seq = 256, .seed = job.seed, .shuffle = true});
//   const SampleRange mine = SamplesOfRank(step, global_batch, rank, world_size);
//   Batch batch;
//   stream.Read(mine.first, mine.count, &batch);  // row b is sample mine.first + b
//
// The split's tokens are cut into windows of `seq`; a sample is a window:
//
//   tokens      BOS a b EOS BOS c d e | f EOS BOS g h i j k | l m EOS - - - - -
//   window       0                      1                     2 (padded with EOS)
//   positions    0  1 2  3   0  1 2 3   0  1   0  1 2 3 4 5   0 1  2  0 1 2 3 4
//   doc_start    0  0 0  0   4  4 4 4   0  0   2  2 2 2 2 2   0 0  0  3 3 3 3 3
//   targets      a  b E  -   c  d e f   E  -   g  h i j k l   m E  -  - - - - -
//
// so in an epoch each token of the split is an input exactly once. A target is the next token of
// the same document, across the window's end too; where there is none it is kNoTarget, which the
// loss does not count. doc_start is the index in the row where the token's document (or its part
// in this window) starts: a token attends to [doc_start, itself]. Padding is a document of its own.
//
// Sample s is in epoch e = s / n at place i = s % n, n = samples_per_epoch(), and shows window
// KeyedPermutation(seed, e, n).At(i), or window i without shuffle. There is no state: a resumed
// run, another world size or another layout reads the same global batches, and no sample is left
// out at an epoch's end, where a batch takes its last rows from the next epoch.
// Thread-safe. Lifetime: the dataset must outlive the stream. Cost of a row: seq ids copied, and
// about 50 ns; Read allocates only when `out` never held as many rows.

#ifndef CRIA_TRAINER_DATA_BATCH_STREAM_H_
#define CRIA_TRAINER_DATA_BATCH_STREAM_H_

#include <cstdint>
#include <vector>

#include "trainer/data/token_dataset.h"

namespace cria::trainer {

// The target of a token that has no next token.
inline constexpr int32_t kNoTarget = -100;

// Row-major [batch, seq] (B batch, T time).
struct Batch {
  int64_t batch = 0;
  int64_t seq = 0;
  std::vector<int32_t> tokens_BT;
  std::vector<int32_t> targets_BT;    // kNoTarget: not counted
  std::vector<int32_t> positions_BT;  // restart at each document and each row
  std::vector<int32_t> doc_start_BT;  // in the row, <= the token's own index
  int64_t num_valid = 0;              // targets that count
};

struct SampleRange {
  int64_t first = 0;
  int64_t count = 0;
};

// The samples that `rank` reads for `step`: its share of the global batch
// [step * global_batch, (step + 1) * global_batch). The shares of all ranks are that range, in rank
// order, and differ by at most one sample. `rank` is the global rank, not the one on its node.
SampleRange SamplesOfRank(int64_t step, int64_t global_batch, int64_t rank, int64_t world_size);

class BatchStream {
 public:
  struct Options {
    int64_t seq = 0;  // tokens a row, at least 1 (checked)
    uint64_t seed = 0;
    bool shuffle = true;
  };

  BatchStream(const TokenDataset* dataset, Options options);

  // Windows in the split; 0 for an empty split, from which nothing can be read.
  int64_t samples_per_epoch() const { return samples_per_epoch_; }

  // The window that sample `sample` (>= 0) shows: tokens [window * seq, (window + 1) * seq).
  int64_t WindowOf(int64_t sample) const;

  // Samples first .. first + count - 1 as rows. The split must not be empty (checked).
  void Read(int64_t first_sample, int64_t count, Batch* out) const;

 private:
  void ReadRow(int64_t window, int64_t row, Batch* out) const;

  const TokenDataset* const dataset_;
  const Options options_;
  const int64_t samples_per_epoch_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_BATCH_STREAM_H_
