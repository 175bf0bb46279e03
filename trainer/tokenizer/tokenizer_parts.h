// What a byte-level BPE tokenizer is made of, whichever file it came from, and what must hold.
//
//   TokenizerParts parts;              // filled by a reader (tokenizer_json.h) or by training
//   CRIA_RETURN_IF_ERROR(CompleteParts("tokenizer.json", &parts));
//
// Plain data: Thread-compatible.

#ifndef CRIA_TRAINER_TOKENIZER_TOKENIZER_PARTS_H_
#define CRIA_TRAINER_TOKENIZER_TOKENIZER_PARTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/normalizer.h"
#include "trainer/tokenizer/pre_tokenizer_step.h"

namespace cria::trainer {

inline constexpr char kBeginOfText[] = "<|begin_of_text|>";
inline constexpr char kEndOfText[] = "<|end_of_text|>";

// A token that is matched in the text as it stands, before any splitting (added_tokens.h).
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = true;       // a control token: left out of what users see
  bool normalized = false;   // looked for after the others, and in normalized text
  bool single_word = false;  // only where no word character is beside it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space behind it along
  // The file's vocabulary lists it as well. A token that is not special can then be made by merging
  // or by ignore_merges too, where it was not found as an added one.
  bool in_vocab = false;
  bool operator==(const AddedToken&) const = default;
};

// What a tokenizer is made of, whichever file it came from.
struct TokenizerParts {
  std::vector<NormalizerStep> normalizer;  // most have none
  // What cuts the text, one after another; a match is a piece. None: runs of valid UTF-8 are whole
  // pieces.
  std::vector<std::string> split_expressions;
  // Where a file asks for more than that: all its steps, and no split_expressions.
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<std::string> tokens;  // bytes by id; empty where an id has none
  // Ids of `tokens` that stand for their text and are never made by merging: entries of a file's
  // vocabulary that have characters outside of the byte alphabet. Ascending.
  std::vector<int32_t> literal_ids;
  std::vector<BpeMerge> merges;  // by rank
  bool ignore_merges = true;
  // What a byte becomes that the vocabulary has no token for; nullopt: it is dropped.
  std::optional<int32_t> unk_id;
  bool fuse_unk = false;          // one for a run of such bytes
  std::vector<AddedToken> added;  // `tokens` may or may not have them as well
  // Ids that EncodeOptions::add_template puts around the text: usually begin-of-text.
  std::vector<int32_t> template_prefix;
  std::vector<int32_t> template_suffix;

  // By id: true where merging must not make the token: literals, and what is an added token alone.
  std::vector<bool> IsNeverMerged() const;

  // The first byte without a token of its own; nullopt: each has one, so every text can be encoded.
  std::optional<int> MissingByte() const;

  bool operator==(const TokenizerParts&) const = default;
};

// Puts the contents of the added tokens into `tokens`, sorts them by id, sets in_vocab where a file
// has to list one so that it keeps its id, and checks what Bpe relies
// on: no bytes and no id twice (but an added token may have another's bytes), merges of tokens that
// exist and make their result, a template of tokens that exist. DataLoss, beginning with `name`,
// where that does not hold.
Status CompleteParts(const std::string& name, TokenizerParts* parts);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_TOKENIZER_PARTS_H_
