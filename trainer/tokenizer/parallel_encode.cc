#include "trainer/tokenizer/parallel_encode.h"

#include <algorithm>

#include "base/parallel.h"

namespace cria::trainer {
namespace {

// An ASCII character that is no white space, so that the line end before it ends a piece.
bool StartsPiece(char c) { return c > ' ' && c < 0x7F; }

// The next place at or after `from` where the text may be cut.
size_t NextCut(std::string_view text, size_t from) {
  size_t newline = text.find('\n', from);
  while (newline != std::string_view::npos && newline + 1 < text.size()) {
    if (StartsPiece(text[newline + 1])) return newline + 1;
    newline = text.find('\n', newline + 1);
  }
  return text.size();
}

}  // namespace

std::vector<std::vector<int32_t>> EncodeTexts(const Tokenizer& tokenizer,
                                              std::span<const std::string_view> texts,
                                              const EncodeOptions& options) {
  std::vector<std::vector<int32_t>> ids(texts.size());
  ParallelFor(static_cast<int64_t>(texts.size()), [&](int64_t i) {
    ids[i].reserve(texts[i].size() / 3 + 8);
    tokenizer.Encode(texts[i], options, &ids[i]);
  });
  return ids;
}

std::vector<int32_t> EncodeLongText(const Tokenizer& tokenizer, std::string_view text,
                                    const EncodeOptions& options, size_t block_bytes) {
  std::vector<int32_t> all;
  const EncodeOptions inner{.parse_special = options.parse_special, .add_template = false};
  std::vector<std::string_view> blocks;
  const bool can_cut = tokenizer.CanCutAtLineStarts(options);
  for (size_t begin = 0; begin < text.size();) {
    const size_t wanted = begin + std::max<size_t>(1, block_bytes);
    const size_t end = can_cut && wanted < text.size() ? NextCut(text, wanted - 1) : text.size();
    blocks.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  const std::vector<std::vector<int32_t>> parts = EncodeTexts(tokenizer, blocks, inner);
  size_t count = 0;
  for (const std::vector<int32_t>& part : parts) count += part.size();
  all.reserve(count + 2);
  if (options.add_template) {
    const std::vector<int32_t>& prefix = tokenizer.parts().template_prefix;
    all.insert(all.end(), prefix.begin(), prefix.end());
  }
  for (const std::vector<int32_t>& part : parts) all.insert(all.end(), part.begin(), part.end());
  if (options.add_template) {
    const std::vector<int32_t>& suffix = tokenizer.parts().template_suffix;
    all.insert(all.end(), suffix.begin(), suffix.end());
  }
  return all;
}

}  // namespace cria::trainer
