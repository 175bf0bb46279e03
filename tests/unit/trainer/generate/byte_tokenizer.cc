#include "tests/unit/trainer/generate/byte_tokenizer.h"

#include <string>

#include "base/check.h"

namespace cria::trainer {

const Tokenizer& ByteTokenizer() {
  static const Tokenizer* const tokenizer = [] {
    TokenizerParts parts;
    for (int byte = 0; byte < 256; ++byte) {
      parts.tokens.push_back(std::string(1, static_cast<char>(byte)));
    }
    int32_t id = 256;
    for (const char* content :
         {kBeginOfText, kEndOfText, "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}) {
      parts.added.push_back({.id = id++, .content = content});
    }
    parts.template_prefix = {kByteBos};
    auto made = Tokenizer::FromParts(std::move(parts), "bytes");
    CRIA_CHECK(made.ok(), Message(made.status()));
    return new Tokenizer(*std::move(made));
  }();
  return *tokenizer;
}

}  // namespace cria::trainer
