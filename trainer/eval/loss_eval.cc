#include "trainer/eval/loss_eval.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"

namespace cria::trainer {
namespace {

model::TokenBatch View(Batch* batch) {
  const auto view = [&](std::vector<int32_t>& x) {
    return model::Tensor(x.data(), model::DType::kI32, {batch->batch * batch->seq});
  };
  return {.batch = batch->batch,
          .time = batch->seq,
          .tokens = view(batch->tokens_BT),
          .targets = view(batch->targets_BT),
          .positions = view(batch->positions_BT),
          .doc_start = view(batch->doc_start_BT)};
}

int64_t TextBytes(const Batch& batch, const Tokenizer& tokenizer) {
  int64_t bytes = 0;
  for (const int32_t target : batch.targets_BT) {
    if (target == kNoTarget || tokenizer.IsSpecial(target)) continue;
    bytes += static_cast<int64_t>(tokenizer.TokenBytes(target).size());
  }
  return bytes;
}

}  // namespace

double LossResult::loss() const {
  if (num_tokens == 0) return std::numeric_limits<double>::quiet_NaN();
  return loss_sum / static_cast<double>(num_tokens);
}

double LossResult::perplexity() const { return std::exp(loss()); }

std::optional<double> LossResult::bits_per_byte() const {
  if (!num_bytes || *num_bytes == 0) return std::nullopt;
  return loss_sum / std::numbers::ln2 / static_cast<double>(*num_bytes);
}

StatusOr<LossResult> EvaluateLoss(model::Llama* model, const EvalWindows& windows,
                                  const Tokenizer* tokenizer, const LossOptions& options) {
  CRIA_CHECK(options.batch >= 1, options.batch);
  LossResult result;
  if (tokenizer != nullptr) result.num_bytes = 0;
  Batch batch;
  while (result.num_windows < windows.count()) {
    const int64_t count = std::min(options.batch, windows.count() - result.num_windows);
    CRIA_RETURN_IF_ERROR(windows.Read(result.num_windows, count, &batch));
    const model::LossSum loss = model->Evaluate(View(&batch));
    CRIA_CHECK_EQ(loss.num_valid, batch.num_valid);
    result.loss_sum += loss.sum;
    result.num_tokens += loss.num_valid;
    result.num_windows += count;
    if (tokenizer != nullptr) *result.num_bytes += TextBytes(batch, *tokenizer);
    if (options.progress && !options.progress(result)) return CancelledError("interrupted");
  }
  return result;
}

}  // namespace cria::trainer
