#include "trainer/eval/eval_windows.h"

#include <algorithm>
#include <span>

#include "base/check.h"

namespace cria::trainer {

EvalWindows::EvalWindows(const TokenText* text, Options options)
    : text_(text),
      options_(options),
      num_inputs_(std::min(text->num_tokens(), options.tokens_max)),
      count_(num_inputs_ <= 0 ? 0
             : num_inputs_ <= options.seq
                 ? 1
                 : 1 + (num_inputs_ - options.seq + options.stride - 1) / options.stride) {
  CRIA_CHECK(options.stride >= 1 && options.stride <= options.seq, "stride ", options.stride,
             " seq ", options.seq);
}

Status EvalWindows::Read(int64_t first, int64_t count, Batch* out) const {
  CRIA_CHECK(first >= 0 && count >= 0 && first + count <= count_, first, " + ", count);
  const auto size = static_cast<size_t>(count * options_.seq);
  out->batch = count;
  out->seq = options_.seq;
  out->tokens_BT.resize(size);
  out->targets_BT.resize(size);
  out->positions_BT.resize(size);
  out->doc_start_BT.resize(size);
  out->num_valid = 0;
  for (int64_t row = 0; row < count; ++row) CRIA_RETURN_IF_ERROR(ReadRow(first + row, row, out));
  return OkStatus();
}

Status EvalWindows::ReadRow(int64_t window, int64_t row, Batch* out) const {
  const int64_t seq = options_.seq;
  const auto offset = static_cast<size_t>(row * seq);
  const std::span<int32_t> tokens(out->tokens_BT.data() + offset, static_cast<size_t>(seq));
  const int64_t begin = window * options_.stride;
  const int64_t num_real = std::min(seq, num_inputs_ - begin);
  // The token behind the window is the last one's target.
  int32_t after = 0;
  const bool has_after = begin + num_real < text_->num_tokens();
  CRIA_RETURN_IF_ERROR(text_->Read(begin, tokens.first(static_cast<size_t>(num_real))));
  if (has_after) CRIA_RETURN_IF_ERROR(text_->Read(begin + num_real, std::span(&after, 1)));
  for (int64_t t = 0; t < num_real + (has_after ? 1 : 0); ++t) {
    const int32_t id = t < num_real ? tokens[static_cast<size_t>(t)] : after;
    if (id >= 0 && id < options_.vocab) continue;
    return InvalidArgumentError(text_->name(), ": token ", begin + t, " is ",
                                static_cast<uint32_t>(id), "; the model's vocabulary has ",
                                options_.vocab);
  }
  // Padding is a document of its own.
  std::fill(tokens.begin() + num_real, tokens.end(), tokens[0]);
  const int64_t first_counted = window == 0 ? 0 : seq - options_.stride;
  const std::optional<int32_t> start_id = text_->document_start();
  int32_t start = 0;
  for (int64_t t = 0; t < seq; ++t) {
    const auto at = static_cast<size_t>(t);
    if ((t < num_real && tokens[at] == start_id) || t == num_real) start = static_cast<int32_t>(t);
    const bool has_next = t + 1 < num_real || (t + 1 == num_real && has_after);
    const int32_t next = t + 1 < num_real ? tokens[at + 1] : after;
    const bool counts = has_next && next != start_id && t >= first_counted;
    out->targets_BT[offset + at] = counts ? next : kNoTarget;
    out->positions_BT[offset + at] = static_cast<int32_t>(t) - start;
    out->doc_start_BT[offset + at] = start;
    out->num_valid += counts;
  }
  return OkStatus();
}

}  // namespace cria::trainer
