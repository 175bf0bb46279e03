#include "trainer/data/manifest.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"

namespace cria::trainer {
namespace {

constexpr char kFormat[] = "cria-data";
constexpr int64_t kVersion = 1;
constexpr uint64_t kManifestBytesMax = uint64_t{64} << 20;
constexpr int64_t kTokensMax = int64_t{1} << 52;  // sums stay far from overflow
constexpr int64_t kVocabMax = int64_t{1} << 24;
constexpr int64_t kVerifyTokens = int64_t{1} << 16;

Json SplitToJson(const SplitInfo& split) {
  Json shards = Json::array();
  for (const ShardInfo& shard : split.shards) {
    shards.push_back({{"file", shard.file}, {"tokens", shard.num_tokens}, {"hash", shard.hash}});
  }
  return {{"tokens", split.num_tokens},
          {"documents", split.num_documents},
          {"bytes", split.num_bytes},
          {"shards", std::move(shards)}};
}

Json ToJson(const Manifest& manifest) {
  return {{"format", kFormat},
          {"version", kVersion},
          {"source", manifest.source},
          {"options_hash", manifest.options_hash},
          {"tokenizer",
           {{"file", manifest.tokenizer_file},
            {"fingerprint", manifest.tokenizer_fingerprint},
            {"vocab_size", manifest.vocab_size},
            {"bos_id", manifest.bos_id},
            {"eos_id", manifest.eos_id}}},
          {"dtype", std::string(TokenTypeName(manifest.token_type))},
          {"splits", {{"train", SplitToJson(manifest.train)}, {"val", SplitToJson(manifest.val)}}}};
}

// A name inside the folder: a manifest must not point elsewhere.
StatusOr<std::string> GetFileName(const Json& object, const std::string& where) {
  CRIA_ASSIGN_OR_RETURN(std::string name, JsonGet<std::string>(object, "file", where));
  if (name.empty() || name.starts_with('.') || name.find('/') != name.npos ||
      name.find('\0') != name.npos) {
    return DataLossError(where, ": file \"", name, "\" is no plain file name");
  }
  return name;
}

StatusOr<int64_t> GetCount(const Json& object, const std::string& key, const std::string& where,
                           int64_t max = kTokensMax) {
  CRIA_ASSIGN_OR_RETURN(const int64_t count, JsonGet<int64_t>(object, key, where));
  if (count < 0 || count > max) {
    return DataLossError(where, ": ", key, " is ", count, ", must be in [0, ", max, "]");
  }
  return count;
}

StatusOr<ShardInfo> ShardFromJson(const Json& json, const std::string& where) {
  ShardInfo shard;
  CRIA_ASSIGN_OR_RETURN(shard.file, GetFileName(json, where));
  CRIA_ASSIGN_OR_RETURN(shard.num_tokens, GetCount(json, "tokens", where, kShardTokensMax));
  CRIA_ASSIGN_OR_RETURN(shard.hash, JsonGet<std::string>(json, "hash", where));
  return shard;
}

StatusOr<SplitInfo> SplitFromJson(const Json& splits, const std::string& name,
                                  const std::string& file) {
  const std::string where = StrCat(file, ": splits.", name);
  CRIA_ASSIGN_OR_RETURN(const Json json, JsonGet<Json>(splits, name, file));
  SplitInfo split;
  CRIA_ASSIGN_OR_RETURN(split.num_tokens, GetCount(json, "tokens", where));
  CRIA_ASSIGN_OR_RETURN(split.num_documents, GetCount(json, "documents", where));
  CRIA_ASSIGN_OR_RETURN(split.num_bytes, GetCount(json, "bytes", where));
  CRIA_ASSIGN_OR_RETURN(const auto shards, JsonGet<std::vector<Json>>(json, "shards", where));
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    CRIA_ASSIGN_OR_RETURN(ShardInfo shard,
                          ShardFromJson(shards[i], StrCat(where, ".shards[", i, "]")));
    total += shard.num_tokens;
    if (total > kTokensMax) return DataLossError(where, ": over ", kTokensMax, " tokens");
    split.shards.push_back(std::move(shard));
  }
  if (total != split.num_tokens) {
    return DataLossError(where, ": tokens is ", split.num_tokens, ", its shards have ", total);
  }
  return split;
}

StatusOr<Manifest> FromJson(const Json& json, const std::string& file) {
  Manifest manifest;
  CRIA_ASSIGN_OR_RETURN(manifest.source, JsonGet<std::string>(json, "source", file));
  CRIA_ASSIGN_OR_RETURN(manifest.options_hash, JsonGet<std::string>(json, "options_hash", file));

  const std::string where = StrCat(file, ": tokenizer");
  CRIA_ASSIGN_OR_RETURN(const Json tokenizer, JsonGet<Json>(json, "tokenizer", file));
  CRIA_ASSIGN_OR_RETURN(manifest.tokenizer_file, GetFileName(tokenizer, where));
  CRIA_ASSIGN_OR_RETURN(manifest.tokenizer_fingerprint,
                        JsonGet<std::string>(tokenizer, "fingerprint", where));
  CRIA_ASSIGN_OR_RETURN(manifest.vocab_size, GetCount(tokenizer, "vocab_size", where, kVocabMax));
  CRIA_ASSIGN_OR_RETURN(manifest.bos_id, JsonGet<int32_t>(tokenizer, "bos_id", where));
  CRIA_ASSIGN_OR_RETURN(manifest.eos_id, JsonGet<int32_t>(tokenizer, "eos_id", where));
  const auto [id_min, id_max] = std::minmax(manifest.bos_id, manifest.eos_id);
  if (id_min < 0 || id_max >= manifest.vocab_size || id_min == id_max) {
    return DataLossError(where, ": bos_id ", manifest.bos_id, " and eos_id ", manifest.eos_id,
                         " must be two ids below vocab_size ", manifest.vocab_size);
  }

  CRIA_ASSIGN_OR_RETURN(const std::string dtype, JsonGet<std::string>(json, "dtype", file));
  const StatusOr<TokenType> type = ParseTokenType(dtype);
  if (!type.ok()) return DataLossError(file, ": dtype: ", Message(type.status()));
  manifest.token_type = *type;
  if (*type == TokenType::kUint16 && TokenTypeFor(manifest.vocab_size) != *type) {
    return DataLossError(file, ": dtype uint16 can't hold vocab_size ", manifest.vocab_size);
  }

  CRIA_ASSIGN_OR_RETURN(const Json splits, JsonGet<Json>(json, "splits", file));
  CRIA_ASSIGN_OR_RETURN(manifest.train, SplitFromJson(splits, "train", file));
  CRIA_ASSIGN_OR_RETURN(manifest.val, SplitFromJson(splits, "val", file));
  return manifest;
}

// Everything in a manifest was written by us, so what doesn't parse is damage, not a user's typo.
Status AsDataLoss(const Status& status) {
  if (status.code() != StatusCode::kInvalidArgument && status.code() != StatusCode::kOutOfRange) {
    return status;
  }
  return DataLossError(Message(status));
}

StatusOr<Manifest> Parse(const std::string& text, const std::string& file) {
  CRIA_ASSIGN_OR_RETURN(Json json, ParseJson(text, file));
  CRIA_ASSIGN_OR_RETURN(const std::string format, JsonGet<std::string>(json, "format", file));
  CRIA_ASSIGN_OR_RETURN(const int64_t version, JsonGet<int64_t>(json, "version", file));
  if (format != kFormat || version != kVersion) {
    return DataLossError(file, ": format \"", format, "\" version ", version, ", must be \"",
                         kFormat, "\" version ", kVersion);
  }
  CRIA_ASSIGN_OR_RETURN(const std::string checksum, JsonGet<std::string>(json, "checksum", file));
  json.erase("checksum");
  CRIA_ASSIGN_OR_RETURN(const std::string content, DumpJson(json));
  const std::string actual = HashHex(content);
  if (actual != checksum) {
    return DataLossError(file, ": checksum of the content is ", actual, ", the file says \"",
                         checksum, "\": damaged or edited");
  }
  return FromJson(json, file);
}

}  // namespace

Status WriteManifest(const std::string& dir, const Manifest& manifest) {
  Json json = ToJson(manifest);
  CRIA_ASSIGN_OR_RETURN(const std::string content, DumpJson(json));
  json["checksum"] = HashHex(content);
  return WriteJsonFile(JoinPath(dir, kManifestFile), json);
}

StatusOr<Manifest> ReadManifest(const std::string& dir) {
  const std::string file = JoinPath(dir, kManifestFile);
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kManifestBytesMax));
  StatusOr<Manifest> manifest = Parse(text, file);
  if (!manifest.ok()) return AsDataLoss(manifest.status());
  return manifest;
}

StatusOr<const SplitInfo*> FindSplit(const Manifest& manifest, std::string_view split) {
  if (split == "train") return &manifest.train;
  if (split == "val") return &manifest.val;
  return NotFoundError("split \"", split, "\": a data folder has train and val");
}

Status VerifyShard(const ShardReader& shard, const ShardInfo& info, const Manifest& manifest) {
  if (shard.type() != manifest.token_type || shard.num_tokens() != info.num_tokens) {
    return DataLossError("verify ", shard.path(), ": ", shard.num_tokens(), " tokens of ",
                         TokenTypeName(shard.type()), ", the manifest says ", info.num_tokens,
                         " of ", TokenTypeName(manifest.token_type));
  }
  const std::string hash = HashHex(shard.bytes());
  if (hash != info.hash) {
    return DataLossError("verify ", shard.path(), ": hash ", hash, ", the manifest says ",
                         info.hash);
  }
  std::vector<int32_t> ids(static_cast<size_t>(std::min(kVerifyTokens, shard.num_tokens())));
  for (int64_t first = 0; first < shard.num_tokens(); first += kVerifyTokens) {
    const int64_t count = std::min(kVerifyTokens, shard.num_tokens() - first);
    shard.Read(first, std::span(ids).first(static_cast<size_t>(count)));
    for (int64_t i = 0; i < count; ++i) {
      if (static_cast<uint32_t>(ids[i]) < manifest.vocab_size) continue;
      return DataLossError("verify ", shard.path(), ": token ", first + i, " is ",
                           static_cast<uint32_t>(ids[i]), ", the vocabulary has ",
                           manifest.vocab_size);
    }
  }
  return OkStatus();
}

Status VerifyFiles(const std::string& dir, const Manifest& manifest) {
  for (const SplitInfo* split : {&manifest.train, &manifest.val}) {
    for (const ShardInfo& info : split->shards) {
      CRIA_ASSIGN_OR_RETURN(const ShardReader shard, ShardReader::Open(JoinPath(dir, info.file)));
      CRIA_RETURN_IF_ERROR(VerifyShard(shard, info, manifest));
    }
  }
  return OkStatus();
}

}  // namespace cria::trainer
