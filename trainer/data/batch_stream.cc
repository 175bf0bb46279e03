#include "trainer/data/batch_stream.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/rng.h"

namespace cria::trainer {

SampleRange SamplesOfRank(int64_t step, int64_t global_batch, int64_t rank, int64_t world_size) {
  CRIA_CHECK(step >= 0 && global_batch >= 0 && rank >= 0 && rank < world_size, "step ", step,
             " batch ", global_batch, " rank ", rank, " of ", world_size);
  const int64_t begin = global_batch * rank / world_size;
  const int64_t end = global_batch * (rank + 1) / world_size;
  return {.first = step * global_batch + begin, .count = end - begin};
}

BatchStream::BatchStream(const TokenDataset* dataset, Options options)
    : dataset_(dataset),
      options_(options),
      samples_per_epoch_(
          options.seq < 1 ? 0 : (dataset->num_tokens() + options.seq - 1) / options.seq) {
  CRIA_CHECK(options.seq >= 1, "seq ", options.seq);
}

int64_t BatchStream::WindowOf(int64_t sample) const {
  CRIA_CHECK(sample >= 0 && samples_per_epoch_ > 0, "sample ", sample, " of ", samples_per_epoch_,
             " an epoch");
  const int64_t epoch = sample / samples_per_epoch_;
  const int64_t place = sample % samples_per_epoch_;
  if (!options_.shuffle) return place;
  static const uint64_t kStream = StreamOf("data/epoch order");
  const KeyedPermutation order(options_.seed, kStream + static_cast<uint64_t>(epoch),
                               static_cast<uint64_t>(samples_per_epoch_));
  return static_cast<int64_t>(order.At(static_cast<uint64_t>(place)));
}

void BatchStream::Read(int64_t first_sample, int64_t count, Batch* out) const {
  CRIA_CHECK(count >= 0, "count ", count);
  const size_t size = static_cast<size_t>(count * options_.seq);
  out->batch = count;
  out->seq = options_.seq;
  out->tokens_BT.resize(size);
  out->targets_BT.resize(size);
  out->positions_BT.resize(size);
  out->doc_start_BT.resize(size);
  out->num_valid = 0;
  for (int64_t row = 0; row < count; ++row) ReadRow(WindowOf(first_sample + row), row, out);
}

void BatchStream::ReadRow(int64_t window, int64_t row, Batch* out) const {
  const int64_t seq = options_.seq;
  const size_t offset = static_cast<size_t>(row * seq);
  const std::span<int32_t> tokens(out->tokens_BT.data() + offset, static_cast<size_t>(seq));
  int32_t* const targets = out->targets_BT.data() + offset;
  int32_t* const positions = out->positions_BT.data() + offset;
  int32_t* const doc_start = out->doc_start_BT.data() + offset;

  const int64_t first = window * seq;
  const int64_t num_real = std::min(seq, dataset_->num_tokens() - first);
  dataset_->Read(first, tokens.first(static_cast<size_t>(num_real)));
  std::fill(tokens.begin() + num_real, tokens.end(), dataset_->eos_id());

  // The token after the window, or a document's start when the split ends there: no target then.
  const int32_t bos = dataset_->bos_id();
  int32_t after = bos;
  if (first + num_real < dataset_->num_tokens()) {
    dataset_->Read(first + num_real, std::span(&after, 1));
  }

  int32_t start = 0;
  for (int32_t t = 0; t < seq; ++t) {
    const bool is_padding = t >= num_real;
    if (tokens[t] == bos || t == num_real) start = t;
    const int32_t next = t + 1 < num_real ? tokens[t + 1] : after;
    const bool has_target = !is_padding && next != bos;
    targets[t] = has_target ? next : kNoTarget;
    positions[t] = t - start;
    doc_start[t] = start;
    out->num_valid += has_target;
  }
}

}  // namespace cria::trainer
