#include "trainer/data/audit.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "trainer/data/batch_stream.h"

namespace cria::trainer {
namespace {

constexpr int64_t kScanTokens = int64_t{1} << 16;
constexpr int64_t kOptionMax = int64_t{1} << 20;    // products of two and a corpus fit 64 bits
constexpr int64_t kBatchTokens = int64_t{1} << 20;  // read at once

class Auditor {
 public:
  Auditor(const TokenDataset& dataset, const AuditOptions& options)
      : dataset_(dataset),
        options_(options),
        stream_(&dataset, {.seq = options.seq, .seed = options.seed, .shuffle = options.shuffle}),
        seen_(static_cast<size_t>(dataset.num_tokens())),
        rank_samples_(static_cast<size_t>(options.world_size)),
        counts_(static_cast<size_t>(dataset.manifest().vocab_size)) {}

  AuditReport Run() {
    report_.num_tokens = dataset_.num_tokens();
    report_.num_documents = dataset_.num_documents();
    WalkEpoch();
    report_.num_missing = static_cast<int64_t>(std::count(seen_.begin(), seen_.end(), false));
    const auto [least, most] = std::minmax_element(rank_samples_.begin(), rank_samples_.end());
    report_.rank_samples_min = *least;
    report_.rank_samples_max = *most;
    Judge();
    report_.ok = report_.problem.empty();
    return report_;
  }

 private:
  // The epoch is samples [begin, end). Its first and last steps may hold samples of the epochs
  // beside it, which are left out here.
  void WalkEpoch() {
    const int64_t begin = options_.epoch * stream_.samples_per_epoch();
    const int64_t end = begin + stream_.samples_per_epoch();
    const int64_t step_begin = begin / options_.global_batch;
    const int64_t step_end = (end + options_.global_batch - 1) / options_.global_batch;
    report_.num_steps = step_end - step_begin;
    for (int64_t step = step_begin; step < step_end; ++step) {
      for (int64_t rank = 0; rank < options_.world_size; ++rank) {
        const SampleRange range =
            SamplesOfRank(step, options_.global_batch, rank, options_.world_size);
        const int64_t first = std::max(range.first, begin);
        const int64_t last = std::min(range.first + range.count, end);
        if (first >= last) continue;
        ReadSamples(first, last);
        rank_samples_[static_cast<size_t>(rank)] += last - first;
      }
    }
  }

  void ReadSamples(int64_t first, int64_t last) {
    const int64_t rows_max = std::max<int64_t>(1, kBatchTokens / options_.seq);
    while (first < last) {
      stream_.Read(first, std::min(rows_max, last - first), &batch_);
      for (int64_t row = 0; row < batch_.batch; ++row) MarkRow(first + row, row);
      report_.num_samples += batch_.batch;
      report_.num_valid += batch_.num_valid;
      first += batch_.batch;
    }
  }

  void MarkRow(int64_t sample, int64_t row) {
    const int64_t first = stream_.WindowOf(sample) * options_.seq;
    const int64_t num_real = std::min(options_.seq, dataset_.num_tokens() - first);
    report_.num_padding += options_.seq - num_real;
    for (int64_t t = 0; t < num_real; ++t) {
      const size_t index = static_cast<size_t>(first + t);
      ++report_.num_seen;
      report_.num_repeated += seen_[index];
      seen_[index] = true;
      ++counts_[static_cast<size_t>(batch_.tokens_BT[static_cast<size_t>(row * options_.seq + t)])];
    }
  }

  void Judge() {
    if (report_.num_repeated > 0 || report_.num_missing > 0) {
      report_.problem =
          StrCat(report_.num_repeated, " tokens seen again, ", report_.num_missing, " never seen");
      return;
    }
    // Take what lies in the shards off the counts: all must come to zero.
    std::vector<int32_t> ids(static_cast<size_t>(std::min(kScanTokens, dataset_.num_tokens())));
    int64_t num_bos = 0;
    for (int64_t first = 0; first < dataset_.num_tokens(); first += kScanTokens) {
      const int64_t count = std::min(kScanTokens, dataset_.num_tokens() - first);
      const std::span<int32_t> part = std::span(ids).first(static_cast<size_t>(count));
      dataset_.Read(first, part);
      for (const int32_t id : part) {
        --counts_[static_cast<size_t>(id)];
        num_bos += id == dataset_.bos_id();
      }
    }
    for (size_t id = 0; id < counts_.size(); ++id) {
      if (counts_[id] == 0) continue;
      report_.problem = StrCat("id ", id, " came out ", counts_[id],
                               " times more often than it lies in the shards");
      return;
    }
    if (num_bos != report_.num_documents) {
      report_.problem = StrCat(num_bos, " documents start in the shards, the manifest says ",
                               report_.num_documents);
    } else if (report_.num_valid != report_.num_tokens - report_.num_documents) {
      report_.problem = StrCat(report_.num_valid, " targets count, must be ", report_.num_tokens,
                               " tokens less ", report_.num_documents, " documents");
    }
  }

  const TokenDataset& dataset_;
  const AuditOptions& options_;
  const BatchStream stream_;
  std::vector<bool> seen_;  // by token index
  std::vector<int64_t> rank_samples_;
  std::vector<int64_t> counts_;  // by id
  Batch batch_;
  AuditReport report_;
};

}  // namespace

StatusOr<AuditReport> AuditEpoch(const TokenDataset& dataset, const AuditOptions& options) {
  for (const auto& [name, value, least] : {std::tuple{"seq", options.seq, int64_t{1}},
                                           {"world", options.world_size, 1},
                                           {"batch", options.global_batch, 1},
                                           {"epoch", options.epoch, 0}}) {
    if (value < least || value > (kOptionMax)) {
      return InvalidArgumentError("audit: ", name, " is ", value, ", must be in [", least, ", ",
                                  kOptionMax, "]");
    }
  }
  if (dataset.num_tokens() == 0) return InvalidArgumentError("audit: the split holds no token");
  return Auditor(dataset, options).Run();
}

}  // namespace cria::trainer
