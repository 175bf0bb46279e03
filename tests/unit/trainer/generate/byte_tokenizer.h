// A tokenizer whose ids are bytes, with Llama 3's special tokens behind them.
//
//   ByteTokenizer().Encode("ab", &ids);   // {97, 98}
//
// Thread-safe.

#ifndef CRIA_TESTS_UNIT_TRAINER_GENERATE_BYTE_TOKENIZER_H_
#define CRIA_TESTS_UNIT_TRAINER_GENERATE_BYTE_TOKENIZER_H_

#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

// 0 to 255, then <|begin_of_text|>, <|end_of_text|>, <|start_header_id|>, <|end_header_id|>,
// <|eot_id|> (256 to 260). The template puts <|begin_of_text|> before a text.
const Tokenizer& ByteTokenizer();
inline constexpr int32_t kByteBos = 256, kByteEos = 257, kByteStartHeader = 258,
                         kByteEndHeader = 259, kByteEot = 260;
inline constexpr int32_t kByteVocab = 261;

}  // namespace cria::trainer

#endif  // CRIA_TESTS_UNIT_TRAINER_GENERATE_BYTE_TOKENIZER_H_
