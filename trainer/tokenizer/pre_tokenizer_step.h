// One step of a tokenizer.json's pre-tokenizer, as data.
//
//   PreTokenizerStep{.kind = PreTokenizerStep::Kind::kDigits, .individual_digits = true}
//
// A pre-tokenizer is a list of them; pretokenizer.h applies it. Each step cuts the pieces that the
// step before left. Thread-compatible.

#ifndef CRIA_TRAINER_TOKENIZER_PRE_TOKENIZER_STEP_H_
#define CRIA_TRAINER_TOKENIZER_PRE_TOKENIZER_STEP_H_

#include <optional>
#include <string>
#include <string_view>

namespace cria::trainer {

// What becomes of the matches of a pattern.
enum class SplitBehavior {
  kIsolated,            // a piece each
  kRemoved,             // they are dropped
  kMergedWithPrevious,  // they end the piece before them
  kMergedWithNext,      // they begin the piece after them
  kContiguous,          // neighbours are one piece
};

// "Isolated", ...: tokenizer.json's names.
const char* SplitBehaviorName(SplitBehavior behavior);
std::optional<SplitBehavior> SplitBehaviorOf(std::string_view name);

struct PreTokenizerStep {
  enum class Kind {
    kRegex,            // Split with a regular expression
    kString,           // Split with a text as it stands
    kDigits,           // Unicode's numbers
    kPunctuation,      // ASCII's and Unicode's
    kWhitespaceSplit,  // white space, removed
    kByteLevel,        // bytes in GPT-2's alphabet; exactly one of the steps is this
  };

  Kind kind = Kind::kRegex;
  std::string pattern = {};                           // kRegex, kString
  SplitBehavior behavior = SplitBehavior::kIsolated;  // kRegex, kString, kPunctuation
  bool invert = false;                                // kRegex, kString: what does not match counts
  bool individual_digits = false;                     // kDigits: a piece each
  bool add_prefix_space = false;  // kByteLevel: a space before a text that has none
  bool use_regex = false;         // kByteLevel: then cut by GPT-2's expression

  bool operator==(const PreTokenizerStep&) const = default;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_PRE_TOKENIZER_STEP_H_
