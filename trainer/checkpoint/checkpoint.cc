#include "trainer/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "trainer/checkpoint/common_status.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/step_folder.h"

namespace cria::trainer {
namespace {

using model::SafetensorsFile;
using model::StDtype;
using model::TensorToWrite;

// A manifest is a config and a few numbers: more is not ours.
constexpr uint64_t kManifestBytesMax = uint64_t{64} << 20;

Status WriteParts(const std::string& folder, const CheckpointState& state,
                  const CheckpointTensors& tensors) {
  const std::map<std::string, std::string> metadata = PartMetadata(state.step);
  const std::vector<TensorToWrite>* const parts[] = {&tensors.model, &tensors.optimizer,
                                                     &tensors.state};
  CheckpointManifest manifest{state, {}};
  for (size_t i = 0; i < std::size(parts); ++i) {
    CRIA_ASSIGN_OR_RETURN(
        const model::WrittenFile written,
        model::WriteSafetensors(JoinPath(folder, kPartNames[i]), *parts[i], metadata));
    manifest.files.push_back({kPartNames[i], written.bytes, written.hash});
  }
  CRIA_ASSIGN_OR_RETURN(const std::string text, EncodeManifest(manifest));
  return WriteFileAtomic(JoinPath(folder, kManifestName), text);
}

// Opens one file of a checkpoint after comparing it with what the manifest says; its hash only if
// asked for.
StatusOr<SafetensorsFile> OpenVerified(const std::string& dir, const ManifestFile& expected,
                                       bool verify_hash) {
  const std::string path = JoinPath(dir, expected.name);
  StatusOr<MappedFile> mapped = MappedFile::Open(path);
  if (!mapped.ok()) return DataLossError(Message(mapped.status()));
  const std::string_view bytes = mapped->bytes();
  if (bytes.size() != expected.bytes) {
    return DataLossError(path, ": ", bytes.size(), " bytes, the manifest says ", expected.bytes);
  }
  const std::string hash = verify_hash ? HashHex(bytes) : expected.hash;
  if (hash != expected.hash) {
    return DataLossError(path, ": altered: hash ", hash, ", the manifest says ", expected.hash);
  }
  return SafetensorsFile::FromMapped(std::move(*mapped), path);
}

}  // namespace

std::string ExpAvgName(std::string_view parameter) { return StrCat("exp_avg.", parameter); }

std::string ExpAvgSqName(std::string_view parameter) { return StrCat("exp_avg_sq.", parameter); }

std::string CheckpointDir(const std::string& checkpoints_dir, int64_t step) {
  return StepFolderPath(checkpoints_dir, step);
}

Status SaveCheckpoint(const std::string& checkpoints_dir, const CheckpointState& state,
                      const CheckpointTensors& tensors) {
  const auto save = [&]() -> Status {
    if (state.step < 0) return InvalidArgumentError("the step is negative");
    CRIA_RETURN_IF_ERROR(MakeDirs(checkpoints_dir));
    CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<TempStepFolder> folder,
                          TempStepFolder::Create(checkpoints_dir, state.step));
    CRIA_RETURN_IF_ERROR(WriteParts(folder->path(), state, tensors));
    return folder->Publish();
  };
  return Annotate(save(), StrCat("save ", CheckpointDir(checkpoints_dir, state.step)));
}

StatusOr<std::string_view> LoadedCheckpoint::Tensor(CheckpointPart part, std::string_view name,
                                                    StDtype dtype,
                                                    const std::vector<int64_t>& shape) const {
  return file(part).DataOf(name, dtype, shape);
}

Status LoadedCheckpoint::CopyTo(CheckpointPart part, std::string_view name, StDtype dtype,
                                const std::vector<int64_t>& shape, std::span<std::byte> out) const {
  CRIA_ASSIGN_OR_RETURN(const std::string_view bytes, Tensor(part, name, dtype, shape));
  if (bytes.size() != out.size()) {
    return InvalidArgumentError(file(part).path(), ": tensor ", name, ": ", bytes.size(),
                                " bytes into a buffer of ", out.size());
  }
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return OkStatus();
}

Status LoadedCheckpoint::CopyPiece(CheckpointPart part, const TensorPiece& piece,
                                   std::span<std::byte> out) const {
  CRIA_RETURN_IF_ERROR(CheckPiece(piece));
  const TensorDescription& tensor = piece.tensor;
  CRIA_ASSIGN_OR_RETURN(const std::string_view bytes,
                        Tensor(part, tensor.name, tensor.dtype, tensor.shape));
  const auto width = static_cast<size_t>(tensor.element_bytes());
  if (out.size() != static_cast<size_t>(piece.num_elements()) * width) {
    return InvalidArgumentError(file(part).path(), ": ", piece.num_elements(),
                                " elements of tensor ", tensor.name, " into a buffer of ",
                                out.size(), " bytes");
  }
  ForEachRun(piece, [&](int64_t in_tensor, int64_t in_piece, int64_t count) {
    if (count == 0) return;
    std::memcpy(out.data() + static_cast<size_t>(in_piece) * width,
                bytes.data() + static_cast<size_t>(in_tensor) * width,
                static_cast<size_t>(count) * width);
  });
  return OkStatus();
}

Status LoadedCheckpoint::CheckNames(CheckpointPart part,
                                    const std::vector<std::string>& names) const {
  const SafetensorsFile& file = this->file(part);
  std::set<std::string_view> expected(names.begin(), names.end());
  size_t num_unexpected = 0;
  std::string unexpected;
  for (const model::TensorInfo& tensor : file.tensors()) {
    if (expected.erase(tensor.name) > 0) continue;
    if (num_unexpected++ == 0) unexpected = tensor.name;
  }
  if (expected.empty() && num_unexpected == 0) return OkStatus();
  std::string message = StrCat(file.path(), ": not the tensors of this run:");
  if (!expected.empty()) {
    message += StrCat(" ", expected.size(), " missing (", *expected.begin(), ")");
  }
  if (num_unexpected > 0) {
    message += StrCat(expected.empty() ? " " : ", ", num_unexpected, " unknown (", unexpected, ")");
  }
  return FailedPreconditionError(message);
}

StatusOr<LoadedCheckpoint> LoadedCheckpoint::Load(const std::string& dir, int rank, int size) {
  const std::string manifest_path = JoinPath(dir, kManifestName);
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(manifest_path, kManifestBytesMax));
  CRIA_ASSIGN_OR_RETURN(CheckpointManifest manifest, DecodeManifest(text, manifest_path));
  StepFolder folder;
  if (ParseStepName(BaseName(dir), &folder) && folder.step != manifest.state.step) {
    return DataLossError(manifest_path, ": it is of step ", manifest.state.step,
                         ", which is not the folder's name");
  }
  if (manifest.files.size() != std::size(kPartNames)) {
    return DataLossError(manifest_path, ": lists ", manifest.files.size(), " files, expected ",
                         std::size(kPartNames));
  }
  LoadedCheckpoint loaded;
  loaded.dir_ = dir;
  loaded.manifest_hash_ = HashHex(text);
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    if (manifest.files[i].name != kPartNames[i]) {
      return DataLossError(manifest_path, ": lists ", manifest.files[i].name, " where ",
                           kPartNames[i], " belongs");
    }
    const bool verify_hash = static_cast<int>(i) % size == rank;
    CRIA_ASSIGN_OR_RETURN(SafetensorsFile file, OpenVerified(dir, manifest.files[i], verify_hash));
    loaded.parts_.push_back(std::move(file));
  }
  loaded.state_ = std::move(manifest.state);
  return loaded;
}

StatusOr<LoadedCheckpoint> LoadCheckpoint(const std::string& dir, comm::Communicator* world) {
  if (world == nullptr) return LoadedCheckpoint::Load(dir, 0, 1);
  StatusOr<LoadedCheckpoint> mine = LoadedCheckpoint::Load(dir, world->rank(), world->size());
  CRIA_ASSIGN_OR_RETURN(const std::string first,
                        CommonText(world, mine.ok() ? mine->manifest_hash() : ""));
  Status status = mine.status();
  if (!first.empty() && status.code() == StatusCode::kNotFound) {
    status = NotFoundError(Message(status),
                           "; rank 0 sees it: all ranks need a file system that they share");
  } else if (!first.empty() && status.ok() && mine->manifest_hash() != first) {
    status = FailedPreconditionError(dir,
                                     ": this rank sees another checkpoint there than rank 0: "
                                     "all ranks need a file system that they share");
  }
  CRIA_RETURN_IF_ERROR(CommonStatus(world, status));
  return mine;
}

StatusOr<std::string> FindNewestVerified(const std::string& checkpoints_dir,
                                         std::vector<std::string>* rejected_reasons,
                                         comm::Communicator* world) {
  // What is there by now is rank 0's to say.
  StatusOr<std::vector<StepFolder>> folders = std::vector<StepFolder>();
  if (world == nullptr || world->rank() == 0) folders = ListStepFolders(checkpoints_dir);
  CRIA_RETURN_IF_ERROR(CommonStatus(world, folders.status()));
  int num_rejected = 0;
  for (size_t i = 0;; ++i) {
    CRIA_ASSIGN_OR_RETURN(const std::string path,
                          CommonText(world, i < folders->size() ? (*folders)[i].path : ""));
    if (path.empty()) break;
    const StatusOr<LoadedCheckpoint> loaded = LoadCheckpoint(path, world);
    if (loaded.ok()) return path;
    ++num_rejected;
    if (rejected_reasons != nullptr) rejected_reasons->push_back(Message(loaded.status()));
  }
  if (num_rejected == 0) return NotFoundError(checkpoints_dir, ": there is no checkpoint");
  return NotFoundError(checkpoints_dir, ": none of the ", num_rejected,
                       " checkpoints is complete and unaltered");
}

}  // namespace cria::trainer
