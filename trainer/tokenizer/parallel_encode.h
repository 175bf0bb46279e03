// Encoding on all threads: many texts, or one long text cut where a cut changes nothing.
//
//   std::vector<std::vector<int32_t>> ids = EncodeTexts(tokenizer, documents);
//   std::vector<int32_t> all = EncodeLongText(tokenizer, mapped.bytes());
//
// The ids are those of Tokenizer::Encode, in the texts' order, for any number of threads
// (base/parallel.h). Thread-safe. Memory: the ids.

#ifndef CRIA_TRAINER_TOKENIZER_PARALLEL_ENCODE_H_
#define CRIA_TRAINER_TOKENIZER_PARALLEL_ENCODE_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

std::vector<std::vector<int32_t>> EncodeTexts(const Tokenizer& tokenizer,
                                              std::span<const std::string_view> texts,
                                              const EncodeOptions& options = {});

// Cuts between '\n' and a following ASCII letter, digit or sign, about every `block_bytes`, where
// the tokenizer allows it (Tokenizer::CanCutAtLineStarts); otherwise on one thread.
std::vector<int32_t> EncodeLongText(const Tokenizer& tokenizer, std::string_view text,
                                    const EncodeOptions& options = {},
                                    size_t block_bytes = size_t{1} << 18);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_PARALLEL_ENCODE_H_
