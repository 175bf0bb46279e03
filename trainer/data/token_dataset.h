// One split of a prepared data folder as one long array of tokens, read through mmap.
//
// Called by the trainer (one object per process and split), trainer/data/batch_stream.h, audits.
//
//   CRIA_ASSIGN_OR_RETURN(const TokenDataset train, TokenDataset::Open("data/kjv", "train"));
//   train.Read(train.num_tokens() / 2, buffer);
//
// The array is the split's documents one after another, each BOS t1 ... tn EOS; shards only cut it
// where a file is full. Indices are 64-bit.
// Thread-safe after Open; movable. Memory: the page cache's. The files must stay as they are.

#ifndef CRIA_TRAINER_DATA_TOKEN_DATASET_H_
#define CRIA_TRAINER_DATA_TOKEN_DATASET_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/data/manifest.h"
#include "trainer/data/shard.h"

namespace cria::trainer {

class TokenDataset {
 public:
  struct Options {
    // Hash every shard and check every id against the vocabulary before anything is used. Without
    // it, damage inside a shard ends the process at the first id outside the vocabulary.
    bool verify = true;
  };

  // NotFound, DataLoss: as ReadManifest, ShardReader::Open and VerifyShard. An empty split is fine.
  // Cost with verify: reads the split once, about 2 GB/s.
  static StatusOr<TokenDataset> Open(const std::string& dir, std::string_view split,
                                     Options options);
  static StatusOr<TokenDataset> Open(const std::string& dir, std::string_view split);

  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return num_documents_; }
  int32_t bos_id() const { return manifest_.bos_id; }
  int32_t eos_id() const { return manifest_.eos_id; }
  const Manifest& manifest() const { return manifest_; }

  // Copies tokens [first, first + out.size()), which must lie inside the split (checked).
  void Read(int64_t first, std::span<int32_t> out) const;

 private:
  TokenDataset() = default;

  Manifest manifest_;
  std::vector<ShardReader> shards_;
  std::vector<int64_t> ends_;  // ends_[i]: tokens in shards 0 .. i
  int64_t num_tokens_ = 0;
  int64_t num_documents_ = 0;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_TOKEN_DATASET_H_
