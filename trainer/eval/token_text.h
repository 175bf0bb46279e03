// TokenText: the tokens that a model is evaluated on, one long array of documents, whatever they
// come from.
//
//   CRIA_ASSIGN_OR_RETURN(const auto text, OpenTokenFolder("data/kjv", "val"));
//   CRIA_RETURN_IF_ERROR(text->Read(0, buffer));
//
// Called by trainer/eval/eval_windows.h. Sources: a folder of `cria data`, llm.c's token shards
// (both variants), text that a tokenizer encodes now. Where a document starts, see
// document_start(). Thread-safe after opening.

#ifndef CRIA_TRAINER_EVAL_TOKEN_TEXT_H_
#define CRIA_TRAINER_EVAL_TOKEN_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/data/document_source.h"
#include "trainer/data/manifest.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

class TokenText {
 public:
  virtual ~TokenText() = default;

  // For messages: the folder and split, or the file.
  const std::string& name() const { return name_; }
  int64_t num_tokens() const { return num_tokens_; }
  // The id that begins each document (begin-of-text). None: the text is one document.
  std::optional<int32_t> document_start() const { return document_start_; }

  // Copies tokens [first, first + out.size()), which must lie inside the text (checked).
  virtual Status Read(int64_t first, std::span<int32_t> out) const = 0;

 protected:
  TokenText(std::string name, int64_t num_tokens, std::optional<int32_t> document_start)
      : name_(std::move(name)), num_tokens_(num_tokens), document_start_(document_start) {}

 private:
  const std::string name_;
  const int64_t num_tokens_;
  const std::optional<int32_t> document_start_;
};

// A split of a prepared folder, verified (trainer/data/token_dataset.h). NotFound, DataLoss.
// `manifest` (may be null) gets the folder's.
StatusOr<std::unique_ptr<TokenText>> OpenTokenFolder(const std::string& dir, std::string_view split,
                                                     Manifest* manifest);

// llm.c's shards, one after another as one text. DataLoss for a damaged one, InvalidArgument for
// shards of two kinds.
StatusOr<std::unique_ptr<TokenText>> OpenTokenShards(const std::vector<std::string>& paths,
                                                     std::optional<int32_t> document_start);

// Documents as text, each encoded as begin-of-text, its tokens, end-of-text, where the tokenizer
// has them: what `cria data prepare` stores. Stops after `tokens_max` tokens. Errors of the source.
struct TextOptions {
  SourceOptions source;
  int64_t tokens_max = INT64_MAX;
};
StatusOr<std::unique_ptr<TokenText>> EncodeDocuments(const TextOptions& options,
                                                     const Tokenizer& tokenizer,
                                                     std::optional<int32_t> bos_id,
                                                     std::optional<int32_t> eos_id);

std::unique_ptr<TokenText> TokensInMemory(std::string name, std::vector<int32_t> tokens,
                                          std::optional<int32_t> document_start);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_EVAL_TOKEN_TEXT_H_
