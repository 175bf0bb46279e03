// Hugging Face's tokenizer.json to TokenizerParts and back.
//
//   CRIA_ASSIGN_OR_RETURN(TokenizerParts parts, PartsFromJson(text, "tokenizer.json"));
//   PartsToJson(parts)   // canonical: the same parts give the same bytes
//
// Called by Tokenizer alone. Errors: see tokenizer.h; each names `name` and the place in the
// document. Never crashes on hostile text; memory stays within a small multiple of its size.
// Thread-safe.

#ifndef CRIA_TRAINER_TOKENIZER_TOKENIZER_JSON_H_
#define CRIA_TRAINER_TOKENIZER_TOKENIZER_JSON_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "trainer/tokenizer/tokenizer_parts.h"

namespace cria::trainer {

StatusOr<TokenizerParts> PartsFromJson(std::string_view text, const std::string& name);

std::string PartsToJson(const TokenizerParts& parts);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_TOKENIZER_JSON_H_
