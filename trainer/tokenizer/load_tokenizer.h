// A tokenizer from whichever file a model brings.
//
//   CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, LoadTokenizer("Llama-3.2-1B"));
//
// Called by the commands and by OpenModel. `path` is a tokenizer.json of Hugging Face, a
// tokenizer.model of tiktoken, or a folder with either (the json where both are: it says more).
// What a file is, its content says, not its name. Thread-safe.

#ifndef CRIA_TRAINER_TOKENIZER_LOAD_TOKENIZER_H_
#define CRIA_TRAINER_TOKENIZER_LOAD_TOKENIZER_H_

#include <string>

#include "base/status.h"
#include "trainer/tokenizer/tiktoken.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

enum class TokenizerFileKind { kHuggingFace, kTiktoken };

// "tokenizer.json of Hugging Face", "tiktoken".
const char* TokenizerFileKindName(TokenizerFileKind kind);

// Of a file: `path` itself, or the one in the folder `path`. NotFound: a folder without one.
StatusOr<std::string> FindTokenizerFile(const std::string& path);

// By the first bytes of the file.
StatusOr<TokenizerFileKind> TokenizerFileKindOf(const std::string& file);

// `tiktoken`: what a tiktoken file leaves open. Errors: those of FindTokenizerFile, Tokenizer::Load
// and LoadTiktoken.
StatusOr<Tokenizer> LoadTokenizer(const std::string& path, const TiktokenOptions& tiktoken = {});

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_LOAD_TOKENIZER_H_
