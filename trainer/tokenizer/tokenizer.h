// A byte-level BPE tokenizer, read from and written to Hugging Face's tokenizer.json.
//
//   CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load("tokenizer.json"));
//   std::vector<int32_t> ids;
//   tokenizer.Encode("In the beginning", &ids);
//   tokenizer.Decode(ids) == "In the beginning"        // holds for any bytes, valid UTF-8 or not
//
// Who calls it: data preparation, generation and evaluation, export, the command `tokenize`.
// Text is cut at added tokens (where they are parsed), each rest into pieces by the split
// expression (pretokenizer.h), each piece into ids by merging (bpe.h).
//
// Of tokenizer.json, what byte-level BPEs use is understood: vocab in GPT-2's byte alphabet, merges
// as strings or pairs, ignore_merges, unk_token, added tokens with all their flags, the normalizers
// NFC, NFD, Prepend, Replace and Strip, the pre-tokenizers Split, ByteLevel, Digits, Punctuation
// and WhitespaceSplit, ByteLevel decoder, templates with special tokens before and after the text.
// Anything else that would change ids (NFKC, dropout, byte_fallback) is an error that names it.
// Truncation and padding are not applied. A text comes back as it went in where nothing normalizes
// or drops: no normalizer, no Removed, no prefix space, a token for each byte.
//
// A value type: copies share one immutable state. Thread-safe.

#ifndef CRIA_TRAINER_TOKENIZER_TOKENIZER_H_
#define CRIA_TRAINER_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/tokenizer/tokenizer_parts.h"

namespace cria::trainer {

struct EncodeOptions {
  // Special tokens that stand in the text become their ids; otherwise they are ordinary text
  // (what data from strangers wants). Added tokens that are not special are always parsed.
  bool parse_special = false;
  // Puts the template's tokens before and after (Hugging Face: add_special_tokens).
  bool add_template = false;
};

class Tokenizer {
 public:
  // Reads a tokenizer.json. DataLoss: damaged (not JSON, a merge of unknown tokens, an id twice);
  // Unimplemented: a feature that is not understood; InvalidArgument: the split expression.
  // Each message begins with the path.
  static StatusOr<Tokenizer> Load(const std::string& path);

  // The same from text; `name` stands in for the path.
  static StatusOr<Tokenizer> FromJson(std::string_view text, const std::string& name);

  static StatusOr<Tokenizer> FromParts(TokenizerParts parts, const std::string& name);

  // The canonical tokenizer.json: equal tokenizers give equal bytes.
  std::string ToJson() const;
  Status Save(const std::string& path) const;

  // A hash of ToJson(): two tokenizers with the same one give the same ids.
  std::string Fingerprint() const;

  // Appends the ids of `text`. Linear in its size (pieces of n bytes: n log n).
  void Encode(std::string_view text, std::vector<int32_t>* ids) const { Encode(text, {}, ids); }
  void Encode(std::string_view text, const EncodeOptions& options, std::vector<int32_t>* ids) const;

  // The bytes of the ids, one after another. Ids that don't exist (from a hostile file) give
  // nothing. Valid UTF-8 only where the ids end on whole characters: StreamingDecoder.
  std::string Decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // The bytes of one id; empty when there is no such id. An added token's are its content, also
  // where that has letters of the byte alphabet ("café"; Hugging Face takes them for bytes), but
  // what the normalizer makes of it where it is looked for in normalized text.
  std::string_view TokenBytes(int32_t id) const;
  bool IsSpecial(int32_t id) const;

  // One more than the largest id.
  int32_t vocab_size() const;

  // <|begin_of_text|> and <|end_of_text|>, where the vocabulary has them.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;

  // The id of an added token by its content.
  std::optional<int32_t> AddedTokenId(std::string_view content) const;

  // The pieces that merging never crosses, with all added tokens taken as text.
  std::vector<std::string> Split(std::string_view text) const;

  // True when a text may be cut between '\n' and an ASCII letter, digit or sign, and its parts
  // encoded apart, without a change of ids (parallel_encode.h).
  bool CanCutAtLineStarts(const EncodeOptions& options) const;

  const TokenizerParts& parts() const;

 private:
  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_TOKENIZER_H_
