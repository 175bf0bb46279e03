#include "trainer/data/token_dataset.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/file.h"

namespace cria::trainer {

StatusOr<TokenDataset> TokenDataset::Open(const std::string& dir, std::string_view split) {
  return Open(dir, split, Options{});
}

StatusOr<TokenDataset> TokenDataset::Open(const std::string& dir, std::string_view split,
                                          Options options) {
  TokenDataset dataset;
  CRIA_ASSIGN_OR_RETURN(dataset.manifest_, ReadManifest(dir));
  CRIA_ASSIGN_OR_RETURN(const SplitInfo* info, FindSplit(dataset.manifest_, split));
  for (const ShardInfo& shard_info : info->shards) {
    const std::string path = JoinPath(dir, shard_info.file);
    CRIA_ASSIGN_OR_RETURN(ShardReader shard, ShardReader::Open(path));
    if (shard.type() != dataset.manifest_.token_type ||
        shard.num_tokens() != shard_info.num_tokens) {
      return DataLossError("open ", path, ": ", shard.num_tokens(), " tokens of ",
                           TokenTypeName(shard.type()), ", the manifest says ",
                           shard_info.num_tokens, " of ",
                           TokenTypeName(dataset.manifest_.token_type));
    }
    if (options.verify) CRIA_RETURN_IF_ERROR(VerifyShard(shard, shard_info, dataset.manifest_));
    dataset.num_tokens_ += shard.num_tokens();
    dataset.ends_.push_back(dataset.num_tokens_);
    dataset.shards_.push_back(std::move(shard));
  }
  dataset.num_documents_ = info->num_documents;
  return dataset;
}

void TokenDataset::Read(int64_t first, std::span<int32_t> out) const {
  const int64_t count = static_cast<int64_t>(out.size());
  CRIA_CHECK(first >= 0 && count <= num_tokens_ && first <= num_tokens_ - count, "first ", first,
             " count ", count, " of ", num_tokens_);
  // The first shard that ends after `first`; empty shards end where they start and are passed.
  size_t shard =
      static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  while (!out.empty()) {
    const int64_t start = ends_[shard] - shards_[shard].num_tokens();
    const int64_t here = std::min<int64_t>(ends_[shard] - first, static_cast<int64_t>(out.size()));
    const std::span<int32_t> part = out.first(static_cast<size_t>(here));
    shards_[shard].Read(first - start, part);
    for (const int32_t id : part) {
      CRIA_CHECK(static_cast<uint32_t>(id) < manifest_.vocab_size, "id ", id, " in ",
                 shards_[shard].path(), ": the file was changed, vocabulary ",
                 manifest_.vocab_size);
    }
    out = out.subspan(static_cast<size_t>(here));
    first += here;
    ++shard;
  }
}

}  // namespace cria::trainer
