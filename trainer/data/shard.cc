#include "trainer/data/shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace cria::trainer {
namespace {

constexpr int32_t kMagicUint16 = 20240520;
constexpr int32_t kVersionUint16 = 1;
constexpr int32_t kMagicUint32 = 20240801;
constexpr int32_t kVersionUint32 = 7;
constexpr size_t kBufferBytes = size_t{1} << 20;

int32_t HeaderField(std::string_view bytes, size_t index) {
  int32_t value;
  std::memcpy(&value, bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

std::string Header(TokenType type, int64_t num_tokens) {
  const bool is_small = type == TokenType::kUint16;
  const int32_t fields[3] = {is_small ? kMagicUint16 : kMagicUint32,
                             is_small ? kVersionUint16 : kVersionUint32,
                             static_cast<int32_t>(num_tokens)};
  std::string header(kShardHeaderBytes, '\0');
  std::memcpy(header.data(), fields, sizeof(fields));
  return header;
}

template <typename Id>
void CopyIds(const char* from, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Id id;
    std::memcpy(&id, from + i * sizeof(Id), sizeof(Id));
    out[i] = static_cast<int32_t>(id);
  }
}

}  // namespace

int64_t TokenBytes(TokenType type) { return type == TokenType::kUint16 ? 2 : 4; }

std::string_view TokenTypeName(TokenType type) {
  return type == TokenType::kUint16 ? "uint16" : "uint32";
}

StatusOr<TokenType> ParseTokenType(std::string_view name) {
  if (name == "uint16") return TokenType::kUint16;
  if (name == "uint32") return TokenType::kUint32;
  return InvalidArgumentError("token type \"", name, "\": must be uint16 or uint32");
}

TokenType TokenTypeFor(int64_t vocab_size) {
  return vocab_size <= (1 << 16) ? TokenType::kUint16 : TokenType::kUint32;
}

int64_t ShardFileBytes(int64_t num_tokens, TokenType type) {
  return kShardHeaderBytes + num_tokens * TokenBytes(type);
}

ShardReader::ShardReader(std::string path, MappedFile file, TokenType type, int64_t num_tokens)
    : path_(std::move(path)), file_(std::move(file)), type_(type), num_tokens_(num_tokens) {}

StatusOr<ShardReader> ShardReader::Open(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const std::string_view bytes = file.bytes();
  if (bytes.size() < static_cast<size_t>(kShardHeaderBytes)) {
    return DataLossError("open shard ", path, ": ", bytes.size(), " bytes, a header alone has ",
                         kShardHeaderBytes);
  }
  const int32_t magic = HeaderField(bytes, 0);
  if (magic != kMagicUint16 && magic != kMagicUint32) {
    return DataLossError("open shard ", path, ": magic number ", magic, ", must be ", kMagicUint16,
                         " (uint16) or ", kMagicUint32, " (uint32)");
  }
  const TokenType type = magic == kMagicUint16 ? TokenType::kUint16 : TokenType::kUint32;
  const int32_t version_wanted = magic == kMagicUint16 ? kVersionUint16 : kVersionUint32;
  if (HeaderField(bytes, 1) != version_wanted) {
    return DataLossError("open shard ", path, ": version ", HeaderField(bytes, 1), ", must be ",
                         version_wanted, " for magic number ", magic);
  }
  const int64_t num_tokens = HeaderField(bytes, 2);
  if (num_tokens < 0) {
    return DataLossError("open shard ", path, ": token count ", num_tokens, " is negative");
  }
  const int64_t bytes_wanted = ShardFileBytes(num_tokens, type);
  if (static_cast<int64_t>(bytes.size()) != bytes_wanted) {
    return DataLossError("open shard ", path, ": ", bytes.size(), " bytes, must be ", bytes_wanted,
                         " for ", num_tokens, " tokens of ", TokenTypeName(type));
  }
  return ShardReader(path, std::move(file), type, num_tokens);
}

void ShardReader::Read(int64_t first, std::span<int32_t> out) const {
  const int64_t count = static_cast<int64_t>(out.size());
  CRIA_CHECK(first >= 0 && count <= num_tokens_ && first <= num_tokens_ - count, "first ", first,
             " count ", count, " of ", num_tokens_, " in ", path_);
  const char* from = file_.bytes().data() + ShardFileBytes(first, type_);
  if (type_ == TokenType::kUint16) {
    CopyIds<uint16_t>(from, out);
  } else {
    CopyIds<uint32_t>(from, out);
  }
}

ShardWriter::ShardWriter(std::string dir, std::string prefix, TokenType type,
                         int64_t tokens_per_shard)
    : dir_(std::move(dir)),
      prefix_(std::move(prefix)),
      type_(type),
      tokens_per_shard_(tokens_per_shard) {
  CRIA_CHECK(tokens_per_shard >= 1 && tokens_per_shard <= kShardTokensMax, tokens_per_shard);
}

ShardWriter::~ShardWriter() = default;

Status ShardWriter::Append(std::span<const int32_t> ids) {
  const uint32_t id_end = type_ == TokenType::kUint16 ? uint32_t{1} << 16 : uint32_t{1} << 31;
  while (!ids.empty()) {
    if (file_ == nullptr) CRIA_RETURN_IF_ERROR(StartFile());
    const int64_t room = tokens_per_shard_ - file_tokens_;
    const size_t count = std::min<size_t>({ids.size(), static_cast<size_t>(room), kBufferBytes});
    const size_t old_size = buffer_.size();
    const size_t token_bytes = static_cast<size_t>(TokenBytes(type_));
    buffer_.resize(old_size + count * token_bytes);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t id = static_cast<uint32_t>(ids[i]);
      CRIA_CHECK(id < id_end, "id ", ids[i], " as ", TokenTypeName(type_));
      // Little-endian: the low bytes come first.
      std::memcpy(buffer_.data() + old_size + i * token_bytes, &id, token_bytes);
    }
    ids = ids.subspan(count);
    file_tokens_ += static_cast<int64_t>(count);
    num_tokens_ += static_cast<int64_t>(count);
    if (buffer_.size() >= kBufferBytes) CRIA_RETURN_IF_ERROR(FlushBuffer());
    if (file_tokens_ == tokens_per_shard_) CRIA_RETURN_IF_ERROR(CommitFile());
  }
  return OkStatus();
}

StatusOr<std::vector<ShardInfo>> ShardWriter::Finish() {
  if (file_ != nullptr) CRIA_RETURN_IF_ERROR(CommitFile());
  return shards_;
}

Status ShardWriter::StartFile() {
  const std::string name = StrFormat("%s_%06zu.bin", prefix_.c_str(), shards_.size());
  CRIA_ASSIGN_OR_RETURN(file_, AtomicFile::Create(JoinPath(dir_, name)));
  shards_.push_back({.file = name});
  file_tokens_ = 0;
  return file_->Append(Header(type_, 0));  // the count is patched in by CommitFile
}

Status ShardWriter::FlushBuffer() {
  CRIA_RETURN_IF_ERROR(file_->Append(buffer_));
  buffer_.clear();
  return OkStatus();
}

Status ShardWriter::CommitFile() {
  CRIA_RETURN_IF_ERROR(FlushBuffer());
  CRIA_RETURN_IF_ERROR(file_->WriteAt(0, Header(type_, file_tokens_)));
  CRIA_RETURN_IF_ERROR(file_->Commit());
  file_ = nullptr;
  ShardInfo& shard = shards_.back();
  shard.num_tokens = file_tokens_;
  CRIA_ASSIGN_OR_RETURN(shard.hash, HashFileHex(JoinPath(dir_, shard.file)));
  return OkStatus();
}

}  // namespace cria::trainer
