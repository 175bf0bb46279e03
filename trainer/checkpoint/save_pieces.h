// SaveCheckpoint for a state that many ranks hold in pieces: the same files as one rank writes.
//
//   CheckpointPieces pieces;
//   pieces.model = ...;       // every tensor of the model, the same list on all ranks
//   pieces.pieces.push_back({CheckpointPart::kModel, {.tensor = w, .first_row = 8, ...}, bytes});
//   CRIA_RETURN_IF_ERROR(SaveCheckpointPieces("run/checkpoints", state, pieces, world));
//
//   rank 0                                     others
//   is told all pieces, checks the cover  <--  tell what they have
//   makes folder and files              ---- all succeed, or all fail ----
//   writes its pieces in place                 write their pieces in place
//                                       ---- all succeed, or all fail ----
//   hashes, writes the manifest, renames
//                                       ---- all succeed, or all fail ----
//
// Pieces must cover each element of each tensor exactly once (CheckCover). An error of any rank (a
// full disk, say) is every rank's, named by rank, and leaves the older checkpoints as they were. A
// rank that dies or stops meanwhile is an error of the communicator, within its deadline. All ranks
// need a file system that they share: one that does not see rank 0's folder says so. With one rank
// it is SaveCheckpoint. Thread-compatible; called by all ranks of `world`.

#ifndef CRIA_TRAINER_CHECKPOINT_SAVE_PIECES_H_
#define CRIA_TRAINER_CHECKPOINT_SAVE_PIECES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_state.h"
#include "trainer/checkpoint/tensor_piece.h"

namespace cria::trainer {

struct CheckpointPieces {
  struct Piece {
    CheckpointPart part = CheckpointPart::kModel;
    TensorPiece piece;
    std::string_view data;  // the piece's elements; the caller's
  };

  // All tensors of these parts. Those of kState are what the pieces name.
  std::vector<TensorDescription> model, optimizer;
  std::vector<Piece> pieces;  // of this rank
};

// `world` may be null: one rank. `state` is the same on all ranks; rank 0's is written.
Status SaveCheckpointPieces(const std::string& checkpoints_dir, const CheckpointState& state,
                            const CheckpointPieces& pieces, comm::Communicator* world);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECKPOINT_SAVE_PIECES_H_
