// A multiple-choice question as tokens: the context, and each choice as its continuation.
//
// Called by `cria eval`. As lm-evaluation-harness does it (HFLM, `_encode_pair`): white space at
// the context's end goes to the choice, a space stands between the two, the whole and the context
// are encoded, and the continuation is what of the whole lies behind as many tokens as the context
// has. A question that is too long for the model loses tokens at the context's start, each choice
// for itself. Thread-safe.

#ifndef CRIA_TRAINER_EVAL_CHOICE_TOKENS_H_
#define CRIA_TRAINER_EVAL_CHOICE_TOKENS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/eval/choices_file.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

struct ChoiceTokens {
  // What stands before each choice: at least one token. One context that all choices share, or,
  // where any had to be cut, one for each.
  std::vector<std::vector<int32_t>> contexts = {};
  std::vector<std::vector<int32_t>> continuations = {};  // one a choice, none empty
  bool is_truncated = false;

  const std::vector<int32_t>& ContextOf(size_t choice) const {
    return contexts[contexts.size() == 1 ? 0 : choice];
  }
};

struct ChoiceTokensOptions {
  // Put before each context (begin-of-text). Where it is empty, a question without a context begins
  // with `prefix_id` instead, as the model must see something.
  std::optional<int32_t> bos_id = {};
  std::optional<int32_t> prefix_id = {};
  int64_t positions_max = 0;  // tokens of context and choice, less the choice's last
};

// InvalidArgument "<where>: ..." for a choice that is too long by itself, and for an empty context
// where there is no prefix.
StatusOr<ChoiceTokens> EncodeChoices(const ChoiceQuestion& question, const Tokenizer& tokenizer,
                                     const ChoiceTokensOptions& options, const std::string& where);

// `text` without white space (as Python's str.isspace has it) at its end.
std::string_view StripEnd(std::string_view text);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_EVAL_CHOICE_TOKENS_H_
