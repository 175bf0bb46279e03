#include "trainer/checkpoint/manifest.h"

#include <cmath>
#include <limits>
#include <utility>

#include "base/hash.h"
#include "base/json.h"

namespace cria::trainer {
namespace {

constexpr char kFormat[] = "cria checkpoint";
constexpr int64_t kVersion = 1;
constexpr char kBeforeChecksum[] = ",\n  \"checksum\": \"";
constexpr char kAfterChecksum[] = "\"\n}\n";
constexpr size_t kChecksumDigits = 32;

// JSON has no NaN and no infinity: they become strings.
Json EncodeScalar(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

StatusOr<double> DecodeScalar(const Json& scalars, const std::string& key,
                              const std::string& path) {
  const Json& value = scalars.at(key);
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return JsonGet<double>(scalars, key, path);
}

// The text is the writer's only if its last member is the hash of what precedes it.
Status CheckChecksum(std::string_view text, const std::string& path) {
  const std::string_view before = kBeforeChecksum;
  const std::string_view after = kAfterChecksum;
  const size_t tail = before.size() + kChecksumDigits + after.size();
  if (text.size() < tail || text.substr(text.size() - after.size()) != after ||
      text.substr(text.size() - tail, before.size()) != before) {
    return DataLossError(path, ": cut short or altered: it does not end in a checksum (",
                         text.size(), " bytes)");
  }
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string_view stored = text.substr(body.size() + before.size(), kChecksumDigits);
  const std::string actual = HashHex(body);
  if (stored != actual) {
    return DataLossError(path, ": altered: its content has checksum ", actual,
                         ", not the one at its end");
  }
  return OkStatus();
}

StatusOr<CheckpointManifest> DecodeChecked(std::string_view text, const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const Json json, ParseJson(text, path));
  CRIA_ASSIGN_OR_RETURN(const auto format, JsonGet<std::string>(json, "format", path));
  CRIA_ASSIGN_OR_RETURN(const auto version, JsonGet<int64_t>(json, "version", path));
  if (format != kFormat || version != kVersion) {
    return InvalidArgumentError(path, ": format \"", format, "\" version ", version,
                                "; this program reads \"", kFormat, "\" version ", kVersion);
  }
  CheckpointManifest manifest;
  CheckpointState& state = manifest.state;
  CRIA_ASSIGN_OR_RETURN(state.step, JsonGet<int64_t>(json, "step", path));
  CRIA_ASSIGN_OR_RETURN(state.tokens, JsonGet<int64_t>(json, "tokens", path));
  CRIA_ASSIGN_OR_RETURN(state.samples, JsonGet<int64_t>(json, "samples", path));
  CRIA_ASSIGN_OR_RETURN(state.seed, JsonGet<uint64_t>(json, "seed", path));
  CRIA_ASSIGN_OR_RETURN(state.config_yaml, JsonGet<std::string>(json, "config_yaml", path));
  CRIA_ASSIGN_OR_RETURN(const Json scalars, JsonGet<Json>(json, "scalars", path));
  if (!scalars.is_object()) return InvalidArgumentError(path, ": scalars: expected an object");
  for (const auto& item : scalars.items()) {
    CRIA_ASSIGN_OR_RETURN(state.scalars[item.key()], DecodeScalar(scalars, item.key(), path));
  }
  CRIA_ASSIGN_OR_RETURN(const auto files, JsonGet<std::vector<Json>>(json, "files", path));
  for (const Json& entry : files) {
    ManifestFile file;
    CRIA_ASSIGN_OR_RETURN(file.name, JsonGet<std::string>(entry, "name", path));
    CRIA_ASSIGN_OR_RETURN(file.bytes, JsonGet<uint64_t>(entry, "bytes", path));
    CRIA_ASSIGN_OR_RETURN(file.hash, JsonGet<std::string>(entry, "hash", path));
    manifest.files.push_back(std::move(file));
  }
  return manifest;
}

}  // namespace

std::map<std::string, std::string> PartMetadata(int64_t step) {
  // "format" is what transformers wants to see in a model's file.
  return {{"format", "pt"}, {"step", StrCat(step)}};
}

StatusOr<std::string> EncodeManifest(const CheckpointManifest& manifest) {
  const CheckpointState& state = manifest.state;
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["step"] = state.step;
  json["tokens"] = state.tokens;
  json["samples"] = state.samples;
  json["seed"] = state.seed;
  json["scalars"] = Json::object();
  for (const auto& [name, value] : state.scalars) {
    JsonAppend(&json["scalars"], name, EncodeScalar(value));
  }
  json["files"] = Json::array();
  for (const ManifestFile& file : manifest.files) {
    Json entry;
    entry["name"] = file.name;
    entry["bytes"] = file.bytes;
    entry["hash"] = file.hash;
    json["files"].push_back(std::move(entry));
  }
  json["config_hash"] = HashHex(state.config_yaml);
  json["config_yaml"] = state.config_yaml;
  CRIA_ASSIGN_OR_RETURN(std::string text, DumpJson(json, 2));
  text.resize(text.size() - 2);  // the final "\n}"
  const std::string checksum = HashHex(text);
  return StrCat(text, kBeforeChecksum, checksum, kAfterChecksum);
}

StatusOr<CheckpointManifest> DecodeManifest(std::string_view text, const std::string& path) {
  CRIA_RETURN_IF_ERROR(CheckChecksum(text, path));
  StatusOr<CheckpointManifest> manifest = DecodeChecked(text, path);
  if (!manifest.ok()) return DataLossError(Message(manifest.status()));
  return manifest;
}

}  // namespace cria::trainer
