// The manifest of a checkpoint: the file that is written last and vouches for all others. Private
// to this folder; README.md shows one.
//
// It is JSON whose last member, "checksum", is the XXH3-128 hash of all bytes before that member,
// so that any damage to the manifest itself shows, and the file stays readable by anybody's parser.
// Thread-safe.

#ifndef CRIA_TRAINER_CHECKPOINT_MANIFEST_H_
#define CRIA_TRAINER_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/checkpoint/checkpoint_state.h"

namespace cria::trainer {

inline constexpr char kManifestName[] = "manifest.json";

// The files that it lists, by CheckpointPart.
inline constexpr const char* kPartNames[] = {"model.safetensors", "optimizer.safetensors",
                                             "state.safetensors"};

// The metadata of each of them.
std::map<std::string, std::string> PartMetadata(int64_t step);

struct ManifestFile {
  std::string name;  // without a folder
  uint64_t bytes = 0;
  std::string hash;  // XXH3-128
};

struct CheckpointManifest {
  CheckpointState state;
  std::vector<ManifestFile> files;
};

// InvalidArgument when a string is not UTF-8.
StatusOr<std::string> EncodeManifest(const CheckpointManifest& manifest);

// DataLoss for anything that EncodeManifest did not write; `path` starts the messages.
StatusOr<CheckpointManifest> DecodeManifest(std::string_view text, const std::string& path);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECKPOINT_MANIFEST_H_
