#include "trainer/eval/token_text.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "trainer/data/shard.h"
#include "trainer/data/token_dataset.h"

namespace cria::trainer {
namespace {

class DatasetText : public TokenText {
 public:
  DatasetText(std::string name, TokenDataset dataset)
      : TokenText(std::move(name), dataset.num_tokens(), dataset.bos_id()),
        dataset_(std::move(dataset)) {}

  Status Read(int64_t first, std::span<int32_t> out) const override {
    dataset_.Read(first, out);
    return OkStatus();
  }

 private:
  const TokenDataset dataset_;
};

class ShardText : public TokenText {
 public:
  ShardText(std::vector<ShardReader> shards, std::vector<int64_t> ends,
            std::optional<int32_t> document_start)
      : TokenText(shards[0].path(), ends.back(), document_start),
        shards_(std::move(shards)),
        ends_(std::move(ends)) {}

  Status Read(int64_t first, std::span<int32_t> out) const override {
    CRIA_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= num_tokens(), first);
    while (!out.empty()) {
      const size_t i =
          static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
      const auto count = std::min<int64_t>(ends_[i] - first, static_cast<int64_t>(out.size()));
      const std::span<int32_t> part = out.first(static_cast<size_t>(count));
      shards_[i].Read(first - (ends_[i] - shards_[i].num_tokens()), part);
      out = out.subspan(part.size());
      first += count;
    }
    return OkStatus();
  }

 private:
  const std::vector<ShardReader> shards_;
  const std::vector<int64_t> ends_;  // ends_[i]: tokens in shards 0 .. i
};

class MemoryText : public TokenText {
 public:
  MemoryText(std::string name, std::vector<int32_t> tokens, std::optional<int32_t> document_start)
      : TokenText(std::move(name), static_cast<int64_t>(tokens.size()), document_start),
        tokens_(std::move(tokens)) {}

  Status Read(int64_t first, std::span<int32_t> out) const override {
    CRIA_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= num_tokens(), first);
    std::copy_n(tokens_.begin() + first, out.size(), out.begin());
    return OkStatus();
  }

 private:
  const std::vector<int32_t> tokens_;
};

}  // namespace

StatusOr<std::unique_ptr<TokenText>> OpenTokenFolder(const std::string& dir, std::string_view split,
                                                     Manifest* manifest) {
  CRIA_ASSIGN_OR_RETURN(TokenDataset dataset, TokenDataset::Open(dir, split));
  if (manifest != nullptr) *manifest = dataset.manifest();
  return std::make_unique<DatasetText>(StrCat(dir, " (", split, ")"), std::move(dataset));
}

StatusOr<std::unique_ptr<TokenText>> OpenTokenShards(const std::vector<std::string>& paths,
                                                     std::optional<int32_t> document_start) {
  CRIA_CHECK(!paths.empty());
  std::vector<ShardReader> shards;
  std::vector<int64_t> ends;
  for (const std::string& path : paths) {
    CRIA_ASSIGN_OR_RETURN(ShardReader shard, ShardReader::Open(path));
    if (!shards.empty() && shard.type() != shards[0].type()) {
      return InvalidArgumentError(path, ": tokens are ", TokenTypeName(shard.type()), ", those of ",
                                  shards[0].path(), " ", TokenTypeName(shards[0].type()));
    }
    ends.push_back((ends.empty() ? 0 : ends.back()) + shard.num_tokens());
    shards.push_back(std::move(shard));
  }
  return std::make_unique<ShardText>(std::move(shards), std::move(ends), document_start);
}

StatusOr<std::unique_ptr<TokenText>> EncodeDocuments(const TextOptions& options,
                                                     const Tokenizer& tokenizer,
                                                     std::optional<int32_t> bos_id,
                                                     std::optional<int32_t> eos_id) {
  CRIA_ASSIGN_OR_RETURN(const auto source, OpenDocuments(options.source));
  std::vector<int32_t> tokens;
  TextPart part;
  while (static_cast<int64_t>(tokens.size()) < options.tokens_max) {
    CRIA_ASSIGN_OR_RETURN(const bool more, source->Next(&part));
    if (!more) break;
    if (part.is_first && bos_id) tokens.push_back(*bos_id);
    tokenizer.Encode(part.text, &tokens);
    if (part.is_last && eos_id) tokens.push_back(*eos_id);
  }
  std::string name = options.source.inputs[0];
  if (options.source.inputs.size() > 1) {
    name += StrCat(" and ", options.source.inputs.size() - 1, " more");
  }
  return TokensInMemory(std::move(name), std::move(tokens), bos_id);
}

std::unique_ptr<TokenText> TokensInMemory(std::string name, std::vector<int32_t> tokens,
                                          std::optional<int32_t> document_start) {
  return std::make_unique<MemoryText>(std::move(name), std::move(tokens), document_start);
}

}  // namespace cria::trainer
