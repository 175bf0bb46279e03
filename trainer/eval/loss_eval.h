// Loss, perplexity and bits per byte of a model on a text of tokens.
//
//   CRIA_ASSIGN_OR_RETURN(const LossResult result, EvaluateLoss(&model, windows, &tokenizer, {}));
//   result.loss(), result.perplexity(), *result.bits_per_byte()
//
// Called by `cria eval`. The model runs by the same code as the trainer's validation
// (Llama::Evaluate), in the model's precision: same data and settings, same figure, bit for bit.
// Single-threaded; threads inside.

#ifndef CRIA_TRAINER_EVAL_LOSS_EVAL_H_
#define CRIA_TRAINER_EVAL_LOSS_EVAL_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "base/status.h"
#include "model/llama/llama.h"
#include "trainer/eval/eval_windows.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

struct LossResult {
  double loss_sum = 0;     // nats, over the predicted tokens
  int64_t num_tokens = 0;  // predicted tokens
  // Of the text that the predicted tokens stand for. A special token (end-of-text) stands for none,
  // though predicting it costs bits like any other. Empty without a tokenizer.
  std::optional<int64_t> num_bytes = {};
  int64_t num_windows = 0;

  double loss() const;        // nats a predicted token; NaN without any
  double perplexity() const;  // e^loss
  // loss_sum / ln 2 / num_bytes: comparable between tokenizers. Empty without a byte.
  std::optional<double> bits_per_byte() const;
};

struct LossOptions {
  int64_t batch = 1;  // windows at once, at most the model's max_batch (checked)
  // Called after each batch with the windows done; false ends the evaluation with Cancelled.
  std::function<bool(const LossResult&)> progress = nullptr;
};

// `tokenizer` may be null. Errors of EvalWindows::Read. Cost: a forward pass of each window.
StatusOr<LossResult> EvaluateLoss(model::Llama* model, const EvalWindows& windows,
                                  const Tokenizer* tokenizer, const LossOptions& options);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_EVAL_LOSS_EVAL_H_
