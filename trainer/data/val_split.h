// Which documents are held out for validation: a rule that needs no list.
//
// Called by trainer/data/prepare.h, over two passes of the same documents.
//
//   ValSplit split(/*fraction=*/0.02, seed);
//   while (!split.decided() && source.Next(&part)) split.Survey(part);   // may end early
//   CRIA_RETURN_IF_ERROR(split.Finish());
//   source.Rewind();
//   ... split.IsVal(part.document) ...
//
// Document d is held out when Rng(seed, ...).Uniform(d) < fraction. The survey sees to it that each
// side gets something:
//   - of two documents or more, each side has at least one: where the rule gives a side none, the
//     document with the lowest draw is held out, or the one with the highest is kept;
//   - a single document is cut in two at its byte (1 - fraction) * size, or a little before, where
//     the tokens allow it (trainer/data/text_cut.h); the part behind is a document of its own;
//   - a single document of one byte can't be cut: an error;
//   - fraction 0: nothing is held out.
// As soon as both sides have a document the rest of the corpus can't change the rule, so a survey
// of many documents reads only the first few.
// Single-threaded until Finish, then thread-safe.

#ifndef CRIA_TRAINER_DATA_VAL_SPLIT_H_
#define CRIA_TRAINER_DATA_VAL_SPLIT_H_

#include <cstdint>
#include <optional>

#include "base/rng.h"
#include "base/status.h"
#include "trainer/data/document_source.h"

namespace cria::trainer {

class ValSplit {
 public:
  // 0 <= fraction < 1 (checked).
  ValSplit(double fraction, uint64_t seed);

  // Shows the next part of the corpus.
  void Survey(const TextPart& part);

  // True when Survey need not be called any more.
  bool decided() const;

  // Ends the survey. Unless decided(), all parts must have been shown. InvalidArgument when the
  // corpus has no text, or too little to hold anything out.
  Status Finish();

  // After Finish: whether document `document` is held out.
  bool IsVal(uint64_t document) const;

  // After Finish: where the only document is to be cut, counted in bytes of it, if it is.
  std::optional<uint64_t> cut_at_byte() const { return cut_at_byte_; }

 private:
  const double fraction_;
  const Rng rng_;

  uint64_t num_documents_ = 0;
  uint64_t num_bytes_ = 0;
  bool has_train_ = false;
  bool has_val_ = false;
  uint64_t lowest_ = 0;   // the document with the lowest draw
  uint64_t highest_ = 0;  // and with the highest

  std::optional<uint64_t> forced_val_;
  std::optional<uint64_t> forced_train_;
  std::optional<uint64_t> cut_at_byte_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_VAL_SPLIT_H_
