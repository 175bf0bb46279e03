// Token shards: files of token ids in llm.c's format, read through mmap, written crash-safely.
//
// Called by trainer/data/prepare.h (writes) and trainer/data/token_dataset.h (reads).
//
//   ShardWriter writer("data/kjv", "train", TokenType::kUint16, kShardTokensDefault);
//   CRIA_RETURN_IF_ERROR(writer.Append(ids));                       // as often as wanted
//   CRIA_ASSIGN_OR_RETURN(const std::vector<ShardInfo> shards, writer.Finish());
//
//   CRIA_ASSIGN_OR_RETURN(const ShardReader shard, ShardReader::Open("data/kjv/train_000000.bin"));
//   shard.Read(/*first=*/1000, buffer);
//
// A file, little-endian:
//
//   byte 0        4         8        12            1024
//        | magic | version | tokens | 0 ... 0 (253) | token ids, uint16 or uint32 each ... | end
//          int32    int32     int32
//
//   uint16: magic 20240520, version 1 (llm.c's GPT-2 files); uint32: magic 20240801, version 7 (its
//   Llama 3 files). The length must be exactly 1024 + tokens * bytes; the count is an int32, so a
//   file holds fewer than 2^31 tokens. Offsets are 64-bit everywhere: llm.c's loader wraps at 2
//   GiB.
//
// Source: llm.c, llmc/dataloader.h and dev/data/data_common.py.

#ifndef CRIA_TRAINER_DATA_SHARD_H_
#define CRIA_TRAINER_DATA_SHARD_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace cria::trainer {

enum class TokenType { kUint16, kUint32 };

// 2 or 4.
int64_t TokenBytes(TokenType type);

// "uint16", "uint32".
std::string_view TokenTypeName(TokenType type);

// The type of that name; InvalidArgument for any other.
StatusOr<TokenType> ParseTokenType(std::string_view name);

// The smallest type that holds every id below `vocab_size`.
TokenType TokenTypeFor(int64_t vocab_size);

inline constexpr int64_t kShardHeaderBytes = 1024;
inline constexpr int64_t kShardTokensMax = (int64_t{1} << 31) - 1;
inline constexpr int64_t kShardTokensDefault = 100'000'000;

// The exact length of a shard file.
int64_t ShardFileBytes(int64_t num_tokens, TokenType type);

// One shard, mapped into memory. Thread-safe after Open; movable.
class ShardReader {
 public:
  // DataLoss, naming file and value, when the header or the length is wrong; NotFound without the
  // file. Token values are not looked at. Cost: one page.
  static StatusOr<ShardReader> Open(const std::string& path);

  const std::string& path() const { return path_; }
  TokenType type() const { return type_; }
  int64_t num_tokens() const { return num_tokens_; }

  // Copies tokens [first, first + out.size()), which must lie inside the shard (checked). An id
  // of 2^31 or more, which no vocabulary has, comes out negative.
  void Read(int64_t first, std::span<int32_t> out) const;

  // The file's bytes, header included, for hashing.
  std::string_view bytes() const { return file_.bytes(); }

 private:
  ShardReader(std::string path, MappedFile file, TokenType type, int64_t num_tokens);

  std::string path_;
  MappedFile file_;
  TokenType type_;
  int64_t num_tokens_;
};

// What a manifest keeps of a shard.
struct ShardInfo {
  std::string file = {};  // name inside the folder: train_000000.bin
  int64_t num_tokens = 0;
  std::string hash = {};  // HashFileHex of the whole file
};

// Writes `<prefix>_000000.bin`, `<prefix>_000001.bin`, ... into a folder, a new file after every
// `tokens_per_shard` tokens. Each appears complete or not at all. Single-threaded.
class ShardWriter {
 public:
  // `tokens_per_shard` in [1, kShardTokensMax] (checked).
  ShardWriter(std::string dir, std::string prefix, TokenType type, int64_t tokens_per_shard);
  ~ShardWriter();

  // Ids must be in [0, 2^16) or [0, 2^31) by type (checked). Errors are those of the disk.
  Status Append(std::span<const int32_t> ids);

  // Commits the last file and returns all of them, in order. No token: no file.
  StatusOr<std::vector<ShardInfo>> Finish();

  int64_t num_tokens() const { return num_tokens_; }

 private:
  Status StartFile();
  Status FlushBuffer();
  Status CommitFile();

  const std::string dir_;
  const std::string prefix_;
  const TokenType type_;
  const int64_t tokens_per_shard_;

  std::vector<ShardInfo> shards_;
  std::unique_ptr<AtomicFile> file_;  // the shard in progress, null between shards
  int64_t file_tokens_ = 0;           // tokens of it, those in buffer_ included
  int64_t num_tokens_ = 0;
  std::string buffer_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_DATA_SHARD_H_
