// The first half of byte-level BPE: text into pieces that merges never cross.
//
//   CRIA_ASSIGN_OR_RETURN(const Pretokenizer split, Pretokenizer::Create({kLlama3Pattern}));
//   split.ForEachPiece(text, [&](std::string_view piece) { ... });
//
// Two kinds. With expressions alone the pieces, one after another, are the text: nothing is
// dropped, whatever the bytes, and each piece lies in the text. With steps (pre_tokenizer_step.h)
// pieces may be dropped, or a space put before the text; they then lie in memory that is gone after
// the call of `emit`.
// Text that is not valid UTF-8 is first cut into maximal runs of valid characters and of bytes that
// belong to none; a valid run is split as a text of its own (but a space is put before the first
// run only), an invalid run is one piece.
// Several expressions apply one after another, each to the pieces of the one before.
// kLlama3Pattern alone runs through llama3_split.h, anything else through PCRE2; Engine::kPcre2
// asks for PCRE2 always (tests compare).
// Thread-safe once made.

#ifndef CRIA_TRAINER_TOKENIZER_PRETOKENIZER_H_
#define CRIA_TRAINER_TOKENIZER_PRETOKENIZER_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/tokenizer/llama3_split.h"
#include "trainer/tokenizer/pre_tokenizer_step.h"
#include "trainer/tokenizer/split_pattern.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {

class Pretokenizer {
 public:
  enum class Engine { kFastest, kPcre2 };

  // InvalidArgument when an expression does not compile. No expression: a run is one piece.
  static StatusOr<Pretokenizer> Create(std::vector<std::string> expressions,
                                       Engine engine = Engine::kFastest);

  // InvalidArgument: an expression that does not compile, an empty kString, not exactly one
  // kByteLevel.
  static StatusOr<Pretokenizer> CreateFromSteps(const std::vector<PreTokenizerStep>& steps);

  template <typename Emit>
  void ForEachPiece(std::string_view text, Emit&& emit) const {
    if (PiecesLieInText()) {
      ForEachPieceInText(text, emit);
    } else {
      ForEachStepPiece(text, emit);
    }
  }

  // The same where PiecesLieInText(), and where it does not hold: for the hot loop of encoding.
  template <typename Emit>
  void ForEachPieceInText(std::string_view text, Emit&& emit) const {
    ForEachUtf8Run(text, [&](std::string_view run, bool is_valid) {
      if (!is_valid) {
        emit(run);
      } else if (is_llama3_) {
        SplitLlama3(run, emit);
      } else {
        for (const std::string_view piece : SplitByPatterns(run)) emit(piece);
      }
    });
  }

  void ForEachStepPiece(std::string_view text,
                        const std::function<void(std::string_view)>& emit) const;

  bool PiecesLieInText() const { return steps_.empty(); }

  const std::vector<std::string>& expressions() const { return expressions_; }

  // True when a cut between '\n' and a following ASCII letter, digit or sign changes no piece, so
  // that long texts can be split in parallel.
  bool SplitsAtLineStarts() const {
    return expressions_.size() == 1 && expressions_[0] == kLlama3Pattern;
  }

 private:
  struct CompiledStep {
    PreTokenizerStep step;
    SplitPattern pattern;
  };

  std::vector<std::string_view> SplitByPatterns(std::string_view run) const;
  void SplitRunBySteps(std::string_view run, bool is_first,
                       const std::function<void(std::string_view)>& emit) const;

  std::vector<std::string> expressions_;
  std::vector<SplitPattern> patterns_;
  std::vector<CompiledStep> steps_;
  bool is_llama3_ = false;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_PRETOKENIZER_H_
