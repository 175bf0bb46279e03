// Text from ids that come one at a time, whole characters only.
//
//   StreamingDecoder decoder(&tokenizer);
//   for (int32_t id : generated) std::fputs(decoder.Push(id).c_str(), stdout);
//   std::fputs(decoder.Finish().c_str(), stdout);
//
// A character of several bytes may be spread over several tokens: its first bytes are held back
// (three at most) until the rest comes or can't come any more. All that Push and Finish return,
// one after another, is Tokenizer::Decode of all ids, invalid bytes included; with replace_invalid
// it is ReplaceInvalidUtf8 of that, so that each return value is valid UTF-8.
// Single-threaded. The tokenizer outlives the decoder.

#ifndef CRIA_TRAINER_TOKENIZER_STREAMING_DECODER_H_
#define CRIA_TRAINER_TOKENIZER_STREAMING_DECODER_H_

#include <cstdint>
#include <string>

#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

class StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer* tokenizer, bool skip_special = false,
                            bool replace_invalid = false)
      : tokenizer_(tokenizer), skip_special_(skip_special), replace_invalid_(replace_invalid) {}

  // The text that `id` completes; may be empty.
  std::string Push(int32_t id);

  // What is still held back, incomplete as it is (one U+FFFD with replace_invalid).
  std::string Finish();

 private:
  const Tokenizer* const tokenizer_;
  const bool skip_special_;
  const bool replace_invalid_;
  std::string held_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_TOKENIZER_STREAMING_DECODER_H_
