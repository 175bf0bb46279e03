#include "trainer/tokenizer/streaming_decoder.h"

#include <utility>

#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {

std::string StreamingDecoder::Push(int32_t id) {
  if (skip_special_ && tokenizer_->IsSpecial(id)) return {};
  held_ += tokenizer_->TokenBytes(id);
  const size_t ready = held_.size() - IncompleteUtf8Suffix(held_);
  std::string text = held_.substr(0, ready);
  held_.erase(0, ready);
  return replace_invalid_ ? ReplaceInvalidUtf8(text) : text;
}

std::string StreamingDecoder::Finish() {
  const std::string text = std::exchange(held_, {});
  return replace_invalid_ ? ReplaceInvalidUtf8(text) : text;
}

}  // namespace cria::trainer
