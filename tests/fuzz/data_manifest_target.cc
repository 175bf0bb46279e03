// manifest.json of a prepared data folder (trainer/data/manifest.h) and the shards that it names.
//
// The first byte of an input: 0: the rest is the manifest; 1: the same, with its checksum mended,
// so that damage gets past it; 2: the rest is the training shard.

#include <array>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/data/manifest.h"
#include "trainer/data/token_dataset.h"

namespace cria::fuzz {
namespace {

using trainer::Manifest;
using trainer::ShardWriter;
using trainer::TokenDataset;

// A valid folder, made once: its manifest's text.
struct Folder {
  Folder() {
    dir = JoinPath(ScratchDir(), "data");
    CRIA_CHECK(MakeDirs(dir).ok());
    Manifest made = {.source = "made here",
                     .options_hash = "0123",
                     .tokenizer_file = "tokenizer.json",
                     .tokenizer_fingerprint = "4567",
                     .vocab_size = 300,
                     .bos_id = 298,
                     .eos_id = 299};
    for (const char* name : {"train", "val"}) {
      ShardWriter writer(dir, name, trainer::TokenType::kUint16, 10);
      CRIA_CHECK(writer.Append(std::array<int32_t, 6>{298, 5, 6, 299, 298, 299}).ok());
      trainer::SplitInfo& split = name[0] == 't' ? made.train : made.val;
      split = {.shards = *writer.Finish(), .num_tokens = 6, .num_documents = 2, .num_bytes = 2};
    }
    CRIA_CHECK(WriteManifest(dir, made).ok());
    manifest = *ReadFile(JoinPath(dir, trainer::kManifestFile));
    shard_name = made.train.shards[0].file;
    shard = *ReadFile(JoinPath(dir, shard_name));
  }
  std::string dir, manifest, shard_name, shard;
};

const Folder& TheFolder() {
  static const Folder folder;
  return folder;
}

std::string WithChecksum(std::string_view text) {
  StatusOr<Json> json = ParseJson(text, "manifest");
  if (!json.ok() || !json->is_object()) return std::string(text);
  json->erase("checksum");
  const StatusOr<std::string> content = DumpJson(*json);
  if (!content.ok()) return std::string(text);
  (*json)["checksum"] = HashHex(*content);
  return *DumpJson(*json, 2);
}

Status Read(std::string_view input) {
  const Folder& folder = TheFolder();
  const FileChoice choice = ChooseFile(input, 3);
  const std::string mended = choice.index == 1 ? WithChecksum(choice.bytes) : "";
  ScratchFile("data/manifest.json", choice.index == 2   ? std::string_view(folder.manifest)
                                    : choice.index == 1 ? std::string_view(mended)
                                                        : choice.bytes);
  ScratchFile(JoinPath("data", folder.shard_name),
              choice.index == 2 ? choice.bytes : std::string_view(folder.shard));
  Status first_error = OkStatus();
  for (const char* split : {"train", "val"}) {
    const StatusOr<TokenDataset> data = TokenDataset::Open(folder.dir, split);
    if (!data.ok()) {
      first_error = NamesPlace(data.status(), folder.dir);
      continue;
    }
    for (int64_t i = 0; i < data->num_tokens(); ++i) {
      int32_t id = -1;
      data->Read(i, std::span(&id, 1));
      CRIA_CHECK(id >= 0 && id < data->manifest().vocab_size);
    }
  }
  return first_error;
}

std::vector<std::string> Seeds() {
  const Folder& folder = TheFolder();
  return {InputFor(0, folder.manifest), InputFor(1, folder.manifest), InputFor(2, folder.shard)};
}

}  // namespace

const Target& TheTarget() {
  static const Target target = {.name = "data_manifest", .read = Read, .seeds = Seeds};
  return target;
}

}  // namespace cria::fuzz
