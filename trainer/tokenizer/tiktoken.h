// tiktoken's vocabulary files, as Meta ships them: tokenizer.model of Llama 3 and later.
//
//   CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, LoadTiktoken("Llama3/tokenizer.model", {}));
//   CRIA_RETURN_IF_ERROR(tokenizer.Save("tokenizer.json"));  // for Hugging Face and GGUF
//
// Called by load_tokenizer.h (which tells the kinds of files apart) and by the import of Meta's
// layout. A line of the file is a token's bytes in base64, a space and its rank, which is its id.
// The file has neither split expression nor special tokens nor template: they are the code's that
// reads it, here TiktokenOptions.
//
// Ids are tiktoken's: of all neighbours whose bytes together are a token, those with the token of
// lowest rank become one, the leftmost of equals first. As merges that is: for each token, every
// cut of it into two tokens, by the token's rank, then by the parts' (the order that Hugging Face's
// converter writes, so that an exported tokenizer.json has the same list), with `ignore_merges`.
// Two cuts of one token are equals for tiktoken and one after the other here; that would matter
// where both are possible at once and overlap, and no text of 1.2 million random ones over 20,000
// random vocabularies gets there (what is merged left of the overlap is merged right of it too).
//
// Thread-safe. Cost: Llama 3's 128,000 tokens in about 0.3 s. Memory: the file's size, and 60
// bytes a token.
// Source: openai/tiktoken, src/lib.rs and tiktoken/load.py; meta-llama/llama-models,
// models/llama3/tokenizer.py.

#ifndef CRIA_TRAINER_TOKENIZER_TIKTOKEN_H_
#define CRIA_TRAINER_TOKENIZER_TIKTOKEN_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/tokenizer/split_pattern.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

// Which special tokens follow the file's tokens.
enum class TiktokenSpecials {
  kNone,
  kLlama30,  // Llama 3: the 256 of April 2024
  kLlama31,  // Llama 3.1 to 3.3, with the names of Meta's code
  // The same ids with the names of Hugging Face's files, where <|step_id|> is unnamed and the
  // reserved ones after <|python_tag|> count from 3.
  kLlama31HuggingFace,
};

struct TiktokenOptions {
  TiktokenSpecials specials = TiktokenSpecials::kLlama31;
  std::string split_expression = kLlama3Pattern;
  // <|begin_of_text|> before a text, where EncodeOptions::add_template asks for it.
  bool begin_of_text = true;
};

// Errors, which begin with the path and the line: DataLoss for what is no base64, no rank, a rank
// twice or beyond the number of lines, the same bytes twice, a byte without a token;
// Unimplemented for a model of sentencepiece (Llama 2), whose file has the same name;
// InvalidArgument for a split expression that does not compile.
StatusOr<Tokenizer> LoadTiktoken(const std::string& path, const TiktokenOptions& options);

// The same from the file's content; `name` stands in for the path.
StatusOr<Tokenizer> TiktokenFromText(std::string_view text, const TiktokenOptions& options,
                                     const std::string& name);

// The file for a tokenizer whose ids tiktoken would give as well: the tokens before the first added
// one, by id. FailedPrecondition where tiktoken would give others: ids with gaps, merges that are
// not all cuts of each token in the order of its id (as one that was learned here), pieces that are
// tokens but merged all the same.
StatusOr<std::string> TiktokenText(const Tokenizer& tokenizer);

// The names of the special tokens, in the order of their ids: none, or 256.
std::vector<std::string> TiktokenSpecialNames(TiktokenSpecials specials);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_TIKTOKEN_H_
