// Windows over a text of tokens in which each token is predicted exactly once.
//
// Called by trainer/eval/loss_eval.h.
//
//   EvalWindows windows(text.get(), {.seq = 256, .stride = 128, .vocab = 4096});
//   CRIA_RETURN_IF_ERROR(windows.Read(0, windows.count(), &batch));
//
// Window w holds tokens [w * stride, w * stride + seq) as inputs; input i predicts token i + 1. A
// window counts only the inputs that no window before it held:
//
//   stride = seq     w0 |#########|                   each token sees what stands before it in its
//                    w1           |#########|         window: 1 to seq tokens
//
//   stride < seq     w0 |#########|                   from the second window on, at least
//                    w1      |....|####|              seq - stride + 1 and at most seq tokens
//                    w2           |....|####|         (as far as its document reaches back)
//
// A document starts at its first token (TokenText::document_start), in a window's middle too:
// tokens attend to their own document alone, positions restart there, and a document's last token
// predicts nothing. With stride = seq all this is what training does (trainer/data/batch_stream.h),
// so the loss is that of the trainer's validation. Thread-safe. Cost: the text is read seq / stride
// times.

#ifndef CRIA_TRAINER_EVAL_EVAL_WINDOWS_H_
#define CRIA_TRAINER_EVAL_EVAL_WINDOWS_H_

#include <cstdint>

#include "base/status.h"
#include "trainer/data/batch_stream.h"
#include "trainer/eval/token_text.h"

namespace cria::trainer {

class EvalWindows {
 public:
  struct Options {
    int64_t seq = 0;
    int64_t stride = 0;              // in [1, seq] (checked)
    int64_t tokens_max = INT64_MAX;  // only the first of the text as inputs; the last of them may
                                     // predict the token behind
    int64_t vocab = 0;               // of the model: a token outside it is an error
  };

  // The text must outlive this.
  EvalWindows(const TokenText* text, Options options);

  int64_t count() const { return count_; }

  // Windows [first, first + count) as the rows of a batch: kNoTarget where a window predicts
  // nothing or does not count, padding as in training. InvalidArgument for a token outside the
  // vocabulary, naming the text, the place and both numbers; the text's errors.
  Status Read(int64_t first, int64_t count, Batch* out) const;

 private:
  Status ReadRow(int64_t window, int64_t row, Batch* out) const;

  const TokenText* const text_;
  const Options options_;
  const int64_t num_inputs_;
  const int64_t count_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_EVAL_EVAL_WINDOWS_H_
