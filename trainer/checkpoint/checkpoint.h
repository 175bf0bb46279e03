// Checkpoints: save, verify, load, prune the state of a training run. Called by the train loop, by
// `--resume`, and by what reads weights afterwards (generate, export).
//
//   CheckpointTensors tensors;
//   for (const Parameter& p : parameters) {
//     tensors.model.push_back({p.name, StDtype::kF32, p.shape, p.bytes()});
//     tensors.optimizer.push_back({ExpAvgName(p.name), StDtype::kF32, p.shape, p.m_bytes()});
//     tensors.optimizer.push_back({ExpAvgSqName(p.name), StDtype::kF32, p.shape, p.v_bytes()});
//   }
//   CRIA_RETURN_IF_ERROR(SaveCheckpoint("run/checkpoints", {.step = 100, ...}, tensors));
//   CRIA_RETURN_IF_ERROR(PruneCheckpoints("run/checkpoints", 3));
//   ...
//   std::vector<std::string> rejected;
//   CRIA_ASSIGN_OR_RETURN(const std::string dir, FindNewestVerified("run/checkpoints", &rejected));
//   CRIA_ASSIGN_OR_RETURN(const LoadedCheckpoint loaded, LoadCheckpoint(dir));
//   CRIA_RETURN_IF_ERROR(loaded.CopyTo(CheckpointPart::kModel, p.name, StDtype::kF32, p.shape,
//   out));
//
// README.md has the folder's layout and the order of the commit. What holds:
// - A folder step_N is complete or it is not called step_N: a kill or a full disk at any point
// leaves
//   the older checkpoints as they were, and at most a leftover that the next prune removes.
// - Nothing is handed out of a checkpoint before every byte of it matched its hash.
// - When SaveCheckpoint returns OK, the state of the call's moment is on the disk; the caller may
//   change its tensors at once.
// Functions are thread-safe as long as two don't save the same step. LoadedCheckpoint is
// thread-safe to read. Several processes may use one folder; they wait for one another (at most 30
// s) around the renames. Tensors that many ranks hold in pieces: save_pieces.h.

#ifndef CRIA_TRAINER_CHECKPOINT_CHECKPOINT_H_
#define CRIA_TRAINER_CHECKPOINT_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "model/io/safetensors.h"
#include "trainer/checkpoint/checkpoint_state.h"
#include "trainer/checkpoint/tensor_piece.h"

namespace cria::trainer {

// The three files of a checkpoint.
enum class CheckpointPart {
  kModel,      // model.safetensors: parameters by name
  kOptimizer,  // optimizer.safetensors: moments, see ExpAvgName
  kState,      // state.safetensors: FP8 history and scales, anything else
};

struct CheckpointTensors {
  std::vector<model::TensorToWrite> model;
  std::vector<model::TensorToWrite> optimizer;
  std::vector<model::TensorToWrite> state;
};

// Names in kOptimizer of a parameter's first and second moment.
std::string ExpAvgName(std::string_view parameter);    // "exp_avg.<name>"
std::string ExpAvgSqName(std::string_view parameter);  // "exp_avg_sq.<name>"

// The folder of a step: "<checkpoints_dir>/step_<step>".
std::string CheckpointDir(const std::string& checkpoints_dir, int64_t step);

// Writes checkpoints_dir/step_N, durable on return. A step_N that is there stays until the new one
// is complete, then the new one takes its place in one rename. On an error nothing has changed, and
// the message names the file and the system's reason. InvalidArgument: a negative step, a config
// that is not UTF-8, tensors as in WriteSafetensors. Cost: the tensors' bytes written and hashed
// once, no copy; about ten fsyncs.
Status SaveCheckpoint(const std::string& checkpoints_dir, const CheckpointState& state,
                      const CheckpointTensors& tensors);

// A verified checkpoint, mapped. Views into it live as long as it does (moving it keeps them), also
// when the folder is replaced or pruned meanwhile.
class LoadedCheckpoint {
 public:
  const std::string& dir() const { return dir_; }
  const CheckpointState& state() const { return state_; }
  const model::SafetensorsFile& file(CheckpointPart part) const {
    return parts_[static_cast<size_t>(part)];
  }

  // The bytes of a tensor; they may be unaligned. Errors as SafetensorsFile::DataOf.
  StatusOr<std::string_view> Tensor(CheckpointPart part, std::string_view name,
                                    model::StDtype dtype, const std::vector<int64_t>& shape) const;

  // Copies it into the caller's memory, which must have exactly its size.
  Status CopyTo(CheckpointPart part, std::string_view name, model::StDtype dtype,
                const std::vector<int64_t>& shape, std::span<std::byte> out) const;

  // Copies a part of a tensor (tensor_piece.h) into memory of exactly its size.
  Status CopyPiece(CheckpointPart part, const TensorPiece& piece, std::span<std::byte> out) const;

  // FailedPrecondition unless the part holds exactly these names; the message shows one that is
  // missing and one that nobody asked for. Call it before CopyTo: a tensor that is silently not
  // restored is a run that goes on from a different model.
  Status CheckNames(CheckpointPart part, const std::vector<std::string>& names) const;

 private:
  friend StatusOr<LoadedCheckpoint> LoadCheckpoint(const std::string& dir,
                                                   comm::Communicator* world);
  LoadedCheckpoint() = default;

  // Of `size` ranks, each hashes its share of the files.
  static StatusOr<LoadedCheckpoint> Load(const std::string& dir, int rank, int size);
  const std::string& manifest_hash() const { return manifest_hash_; }

  std::string dir_;
  std::string manifest_hash_;
  CheckpointState state_;
  std::vector<model::SafetensorsFile> parts_;  // by CheckpointPart
};

// Verifies everything (manifest, sizes, hashes, formats), then hands it out. `dir` may have any
// name; if it is called step_N, N must be the manifest's step. NotFound: no such folder or no
// manifest; DataLoss: anything damaged, with file and values. Cost: each byte is read and hashed
// once.
//
// On many ranks, all of them call it with their `world` (null: one rank): they share the hashing,
// and an error of one is every rank's. FailedPrecondition where a rank sees another checkpoint than
// rank 0.
StatusOr<LoadedCheckpoint> LoadCheckpoint(const std::string& dir,
                                          comm::Communicator* world = nullptr);

// The folder of the checkpoint with the highest step that LoadCheckpoint accepts.
// `rejected_reasons` (may be null) gets a line for each newer one that it does not. NotFound when
// there is none. On many ranks, all of them call it: rank 0 says which folders there are, all share
// the hashing of each as in LoadCheckpoint, and all get the same result and reasons.
StatusOr<std::string> FindNewestVerified(const std::string& checkpoints_dir,
                                         std::vector<std::string>* rejected_reasons,
                                         comm::Communicator* world = nullptr);

// Removes all but the `keep_last` checkpoints with the highest steps, except that
// - the newest one that verifies is never removed (damaged ones may be newer), nor is
// `protect_step`:
//   the caller passes the step it has just saved, which need not be the highest after a resume from
//   an older checkpoint;
// - with keep_last <= 0 all checkpoints stay.
// Also removes what killed saves left. A save under way in any process is not touched: its folder
// is locked (flock), and the lock ends with its process. OK when the folder does not exist. Cost:
// reads and hashes one checkpoint, usually the newest.
Status PruneCheckpoints(const std::string& checkpoints_dir, int keep_last,
                        int64_t protect_step = -1);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECKPOINT_CHECKPOINT_H_
