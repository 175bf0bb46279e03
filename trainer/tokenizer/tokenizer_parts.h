// What a byte-level BPE tokenizer is made of, whichever file it came from, and what must hold.
//
//   TokenizerParts parts;              // filled by a reader (tokenizer_json.h) or by training
//   CRIA_RETURN_IF_ERROR(CompleteParts("tokenizer.json", &parts));
//
// Plain data: Thread-compatible.

#ifndef CRIA_TRAINER_TOKENIZER_TOKENIZER_PARTS_H_
#define CRIA_TRAINER_TOKENIZER_TOKENIZER_PARTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "trainer/tokenizer/bpe.h"

namespace cria::trainer {

inline constexpr char kBeginOfText[] = "<|begin_of_text|>";
inline constexpr char kEndOfText[] = "<|end_of_text|>";

// A token that is matched in the text as it stands, before any splitting.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = true;      // a control token: left out of what users see
  bool normalized = false;  // kept for the file's sake; without a normalizer it means nothing
  bool operator==(const AddedToken&) const = default;
};

// What a tokenizer is made of, whichever file it came from.
struct TokenizerParts {
  std::vector<std::string> split_expressions;  // none: runs of valid UTF-8 are whole pieces
  std::vector<std::string> tokens;             // bytes by id; empty where an id has none
  std::vector<BpeMerge> merges;                // by rank
  bool ignore_merges = true;
  std::vector<AddedToken> added;  // `tokens` may or may not have them as well
  // Ids that EncodeOptions::add_template puts around the text: usually begin-of-text.
  std::vector<int32_t> template_prefix;
  std::vector<int32_t> template_suffix;

  // By id: true where the id belongs to an added token alone, so that merging never makes it and
  // a file's vocabulary need not list it.
  std::vector<bool> IsAddedOnly() const;

  bool operator==(const TokenizerParts&) const = default;
};

// Puts the contents of the added tokens into `tokens`, sorts them by id, and checks what Bpe relies
// on: a token for each byte, no bytes and no id twice, merges of tokens that exist and make their
// result. DataLoss, beginning with `name`, where that does not hold.
Status CompleteParts(const std::string& name, TokenizerParts* parts);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_TOKENIZER_PARTS_H_
