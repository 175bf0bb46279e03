// What a tokenizer.json does to a text before cutting it.
//
//   CRIA_ASSIGN_OR_RETURN(const Normalizer normalizer, Normalizer::Create({{.kind = Kind::kNfc}}));
//   normalizer.Apply("e\u0301") == "\u00e9"
//
// Most byte-level BPEs have none; Qwen 2, GPT-NeoX and OLMo have NFC. Bytes that are no valid UTF-8
// stay as they are, and what is between them is normalized run by run.
// Thread-safe once made. Cost: a pass over the text for each step.

#ifndef CRIA_TRAINER_TOKENIZER_NORMALIZER_H_
#define CRIA_TRAINER_TOKENIZER_NORMALIZER_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/tokenizer/split_pattern.h"

namespace cria::trainer {

struct NormalizerStep {
  enum class Kind {
    kNfc,
    kNfd,
    kPrepend,        // `content` before a text that is not empty
    kReplaceString,  // each `pattern` becomes `content`
    kReplaceRegex,   // each match of `pattern` becomes `content`
    kStrip,          // white space at the ends
  };

  Kind kind = Kind::kNfc;
  std::string pattern = {};
  std::string content = {};
  bool strip_left = false;
  bool strip_right = false;

  bool operator==(const NormalizerStep&) const = default;
};

class Normalizer {
 public:
  // InvalidArgument: an expression that does not compile, an empty text to replace.
  static StatusOr<Normalizer> Create(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }

  std::string Apply(std::string_view text) const;

 private:
  struct CompiledStep {
    NormalizerStep step;
    std::vector<SplitPattern> pattern;  // one for the two replacing kinds, else none
  };

  std::string ApplyToRun(std::string_view run) const;

  std::vector<CompiledStep> steps_;
};

// The white space at the beginning and the end of valid UTF-8 (Unicode's White_Space): its size in
// bytes.
size_t LeadingSpace(std::string_view text);
size_t TrailingSpace(std::string_view text);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_NORMALIZER_H_
