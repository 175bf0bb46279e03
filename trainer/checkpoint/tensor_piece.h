// The piece of a tensor that a rank holds: a stretch of a block of its rows and columns.
//
//   full tensor [4, 6]     block: rows 1-3, columns 2-5     piece: elements [2, 7) of the block
//   . . . . . .
//   . . x x x .            0 1 2                            . . 2
//   . . x x x .            3 4 5                            3 4 5
//   . . x x x .            6 7 8                            6 . .
//
// The block is what tensor parallelism gives a rank, the stretch what it has of the block where
// ranks that share it divide it. Both are as they lie in the rank's memory. CheckCover is the proof
// that the pieces of all ranks are the whole tensors. Thread-safe: values and pure functions.

#ifndef CRIA_TRAINER_CHECKPOINT_TENSOR_PIECE_H_
#define CRIA_TRAINER_CHECKPOINT_TENSOR_PIECE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/io/safetensors.h"

namespace cria::trainer {

// A tensor as files have it.
struct TensorDescription {
  std::string name;
  model::StDtype dtype = model::StDtype::kF32;
  std::vector<int64_t> shape;  // [rows, columns], or [rows]

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }
  int64_t columns() const { return shape.size() < 2 ? 1 : shape[1]; }
  int64_t element_bytes() const { return model::StDtypeBits(dtype) / 8; }
};

struct TensorPiece {
  TensorDescription tensor = {};
  int64_t first_row = 0, first_column = 0;  // of the block in the tensor
  int64_t columns = 1;                      // of the block
  int64_t begin = 0, end = 0;               // elements of the block, row by row

  int64_t num_elements() const { return end - begin; }
};

// InvalidArgument unless the piece lies in its tensor and elements are whole bytes.
Status CheckPiece(const TensorPiece& piece);

// Stretches that are contiguous in the tensor and in the piece, in order: elements from the start
// of each.
void ForEachRun(const TensorPiece& piece,
                const std::function<void(int64_t in_tensor, int64_t in_piece, int64_t count)>& run);

// A piece and whose it is.
struct RankPiece {
  int rank = 0;
  TensorPiece piece = {};
};

// OK when each element of each tensor is in exactly one piece and no piece is of another tensor.
// Otherwise FailedPrecondition with the tensor, an element, and who has it twice or how many nobody
// has; or what pieces disagree on.
Status CheckCover(const std::vector<TensorDescription>& tensors,
                  const std::vector<RankPiece>& pieces);

// [begin, end) of something one-dimensional.
struct Interval {
  int64_t begin = 0, end = 0;
};
// OK when the intervals of `parts` are those of `whole`, each element once; empty ones don't count,
// the order doesn't either, and those of `whole` don't overlap. Otherwise FailedPrecondition that
// names `what` and a place.
Status CheckIntervals(std::vector<Interval> whole, std::vector<Interval> parts,
                      const std::string& what);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECKPOINT_TENSOR_PIECE_H_
