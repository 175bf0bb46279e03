#include "trainer/loop/rank_options.h"

#include <algorithm>

#include "model/parallel/pipeline.h"
#include "trainer/loop/rank_batches.h"

namespace cria::trainer {

std::vector<int64_t> BatchSizes(const TrainConfig& config) {
  std::vector<int64_t> sizes = config.train.ramp_batch;
  sizes.push_back(config.train.batch);
  return sizes;
}

model::LlamaOptions RankOptions(const TrainConfig& config, const model::Layout& layout, int rank) {
  model::LlamaOptions options = config.LlamaOptions();
  options.layout = layout;
  options.rank = rank;
  options.max_batch = 1;
  for (const int64_t batch : BatchSizes(config)) {
    const int64_t share = ShareOfBatch(0, batch, layout.dp, /*dp_rank=*/0).count;
    options.max_batch = std::max(options.max_batch, std::min(config.train.micro_batch, share));
    // More micro-batches may need fewer slots: groups are cut anew for each count.
    const int micro_batches = NumMicroBatches(batch, layout.dp, config.train.micro_batch);
    options.slots = std::max(options.slots, model::SlotsOf(layout, rank, micro_batches));
  }
  return options;
}

}  // namespace cria::trainer
