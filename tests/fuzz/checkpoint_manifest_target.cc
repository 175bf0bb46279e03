// manifest.json of a checkpoint (trainer/checkpoint/manifest.h), and a folder with one.
//
// The first byte of an input: 0: the rest is the manifest; 1: the same, with its checksum mended,
// so that damage gets past it; 2: the rest is model.safetensors.

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"

namespace cria::fuzz {
namespace {

using trainer::CheckpointPart;
using trainer::LoadedCheckpoint;

struct Folder {
  Folder() {
    const std::string root = JoinPath(ScratchDir(), "checkpoints");
    const std::string data(64, '\x3f');
    const std::string_view d = data;
    const trainer::CheckpointTensors tensors = {
        .model = {{"w", model::StDtype::kF32, {2, 3}, d.substr(0, 24)}},
        .optimizer = {{"exp_avg.w", model::StDtype::kF32, {2, 3}, d.substr(0, 24)}},
        .state = {{"scale", model::StDtype::kF32, {1}, d.substr(0, 4)}}};
    CRIA_CHECK(SaveCheckpoint(root,
                              {.step = 7,
                               .tokens = 700,
                               .samples = 70,
                               .seed = 1,
                               .config_yaml = "steps: 10\n",
                               .scalars = {{"bad_steps", 0}, {"x", 0.5}}},
                              tensors)
                   .ok());
    manifest = *ReadFile(JoinPath(root, "step_7/manifest.json"));
    model = *ReadFile(JoinPath(root, "step_7/model.safetensors"));
    name = "checkpoints/step_7";
    dir = JoinPath(ScratchDir(), name);
  }
  std::string name, dir, manifest, model;
};

const Folder& TheFolder() {
  static const Folder folder;
  return folder;
}

// Puts the hash of the damaged content in the place where the checksum stood.
std::string WithChecksum(std::string_view text) {
  constexpr std::string_view kBefore = ",\n  \"checksum\": \"";
  const size_t at = text.rfind(kBefore);
  if (at == std::string_view::npos) return std::string(text);
  return StrCat(text.substr(0, at), kBefore, HashHex(text.substr(0, at)), "\"\n}\n");
}

Status Read(std::string_view input) {
  const Folder& folder = TheFolder();
  const FileChoice choice = ChooseFile(input, 3);
  const std::string manifest = choice.index == 0   ? std::string(choice.bytes)
                               : choice.index == 1 ? WithChecksum(choice.bytes)
                                                   : folder.manifest;
  ScratchFile(folder.name + "/manifest.json", manifest);
  ScratchFile(folder.name + "/model.safetensors",
              choice.index == 2 ? choice.bytes : std::string_view(folder.model));
  const auto decoded = trainer::DecodeManifest(manifest, "the manifest");
  const StatusOr<LoadedCheckpoint> loaded = trainer::LoadCheckpoint(folder.dir);
  if (!loaded.ok()) return NamesPlace(loaded.status(), folder.dir);
  CRIA_CHECK(decoded.ok(), Message(decoded.status()));
  for (const CheckpointPart part :
       {CheckpointPart::kModel, CheckpointPart::kOptimizer, CheckpointPart::kState}) {
    for (const model::TensorInfo& tensor : loaded->file(part).tensors()) {
      Touch(loaded->file(part).Data(tensor));
    }
  }
  return OkStatus();
}

std::vector<std::string> Seeds() {
  const Folder& folder = TheFolder();
  return {InputFor(0, folder.manifest), InputFor(1, folder.manifest), InputFor(2, folder.model)};
}

}  // namespace

const Target& TheTarget() {
  static const Target target = {.name = "checkpoint_manifest", .read = Read, .seeds = Seeds};
  return target;
}

}  // namespace cria::fuzz
