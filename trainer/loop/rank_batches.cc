#include "trainer/loop/rank_batches.h"

#include <algorithm>

#include "model/parallel/context_parallel.h"

namespace cria::trainer {

SampleRange ShareOfBatch(int64_t first_sample, int64_t batch_size, int dp, int dp_rank) {
  const int64_t each = batch_size / dp, more = batch_size % dp;
  return {.first = first_sample + dp_rank * each + std::min<int64_t>(dp_rank, more),
          .count = each + (dp_rank < more ? 1 : 0)};
}

int NumMicroBatches(int64_t batch_size, int dp, int64_t micro_batch) {
  const int64_t largest_share = (batch_size + dp - 1) / dp;
  return static_cast<int>((largest_share + micro_batch - 1) / micro_batch);
}

RankBatches::RankBatches(const BatchStream* stream, const model::Layout& layout,
                         const model::Coordinates& at, const RankBatchOptions& options)
    : stream_(stream), layout_(layout), at_(at), options_(options) {}

void RankBatches::Read(int64_t first_sample, int64_t batch_size) {
  samples_ = ShareOfBatch(first_sample, batch_size, layout_.dp, at_.dp);
  // A share of nothing still needs tokens to stand in.
  stream_->Read(samples_.first, std::max<int64_t>(samples_.count, 1), &batch_);
  if (samples_.count == 0) batch_.num_valid = 0;
  const int count = NumMicroBatches(batch_size, layout_.dp, options_.micro_batch);
  const int64_t rows = (samples_.count + count) * options_.seq / layout_.cp;
  for (std::vector<int32_t>* column :
       {&own_.tokens, &own_.targets, &own_.positions, &own_.doc_start}) {
    column->clear();
    column->reserve(static_cast<size_t>(rows));  // views stay valid
  }
  micro_batches_.clear();
  for (int i = 0; i < count; ++i) {
    const int64_t begin = std::min(samples_.count, i * options_.micro_batch);
    const int64_t end = std::min(samples_.count, begin + options_.micro_batch);
    if (begin < end) {
      AddMicroBatch(begin, end, /*counts=*/true);
    } else {
      AddMicroBatch(0, 1, /*counts=*/false);
    }
  }
}

void RankBatches::AddMicroBatch(int64_t begin, int64_t end, bool counts) {
  const int64_t seq = options_.seq;
  const auto row = static_cast<int64_t>(own_.tokens.size());
  for (const model::ContextSpan& span : model::SpansOf(layout_.cp, at_.cp, end - begin, seq)) {
    for (int64_t sequence = begin; sequence < end; ++sequence) {
      const int64_t from = sequence * seq + span.first;
      const auto append = [&](const std::vector<int32_t>& all, std::vector<int32_t>* own) {
        own->insert(own->end(), all.begin() + from, all.begin() + from + span.time);
      };
      append(batch_.tokens_BT, &own_.tokens);
      append(batch_.targets_BT, &own_.targets);
      append(batch_.positions_BT, &own_.positions);
      append(batch_.doc_start_BT, &own_.doc_start);
    }
  }
  if (!counts) std::fill(own_.targets.begin() + row, own_.targets.end(), kNoTarget);
  micro_batches_.push_back(View(&own_, row, end - begin));
}

model::TokenBatch RankBatches::View(Columns* columns, int64_t row, int64_t sequences) const {
  const int64_t rows = sequences * options_.seq / layout_.cp;
  const auto view = [&](std::vector<int32_t>& x) {
    return model::Tensor(x.data() + row, model::DType::kI32, {rows});
  };
  return {.batch = sequences,
          .time = options_.seq,
          .tokens = view(columns->tokens),
          .targets = view(columns->targets),
          .positions = view(columns->positions),
          .doc_start = view(columns->doc_start)};
}

}  // namespace cria::trainer
