#include "trainer/checkpoint/tensor_piece.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace cria::trainer {
namespace {

std::string Describe(const TensorDescription& tensor) {
  return StrCat(tensor.name, " ", model::DescribeTensor(tensor.dtype, tensor.shape));
}

// Rows and columns of a tensor, ends excluded.
struct Rectangle {
  int rank = 0;
  int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;

  int64_t area() const { return (row_end - row_begin) * (column_end - column_begin); }
};

// A stretch of a block is a part of a row, whole rows, and a part of a row.
void AppendRectangles(const RankPiece& of, std::vector<Rectangle>* out) {
  const TensorPiece& piece = of.piece;
  for (int64_t at = piece.begin; at < piece.end;) {
    const int64_t row = at / piece.columns, column = at % piece.columns;
    Rectangle r = {.rank = of.rank,
                   .row_begin = piece.first_row + row,
                   .row_end = piece.first_row + row + 1,
                   .column_begin = piece.first_column + column};
    int64_t count = std::min(piece.columns - column, piece.end - at);
    r.column_end = r.column_begin + count;
    if (count == piece.columns) {
      const int64_t whole_rows = (piece.end - at) / piece.columns;
      r.row_end = r.row_begin + whole_rows;
      count = whole_rows * piece.columns;
    }
    out->push_back(r);
    at += count;
  }
}

// Rectangles that reach into the same rows are compared in pairs.
Status CheckDisjoint(const TensorDescription& tensor, std::vector<Rectangle>* rectangles) {
  std::sort(rectangles->begin(), rectangles->end(),
            [](const Rectangle& a, const Rectangle& b) { return a.row_begin < b.row_begin; });
  std::vector<const Rectangle*> open;
  for (const Rectangle& r : *rectangles) {
    std::erase_if(open, [&](const Rectangle* o) { return o->row_end <= r.row_begin; });
    for (const Rectangle* o : open) {
      const int64_t column = std::max(o->column_begin, r.column_begin);
      if (column >= std::min(o->column_end, r.column_end)) continue;
      return FailedPreconditionError(Describe(tensor), ": element [", r.row_begin, ", ", column,
                                     "] is in the pieces of rank ", o->rank, " and rank ", r.rank);
    }
    open.push_back(&r);
  }
  return OkStatus();
}

Status CheckTensor(const TensorDescription& tensor, const std::vector<const RankPiece*>& pieces) {
  std::vector<Rectangle> rectangles;
  int64_t covered = 0;
  for (const RankPiece* one : pieces) {
    const TensorDescription& said = one->piece.tensor;
    if (said.dtype != tensor.dtype || said.shape != tensor.shape) {
      return FailedPreconditionError(Describe(tensor), ": rank ", one->rank, " has a piece of ",
                                     Describe(said));
    }
    CRIA_RETURN_IF_ERROR(Annotate(CheckPiece(one->piece), StrCat("rank ", one->rank)));
    AppendRectangles(*one, &rectangles);
  }
  CRIA_RETURN_IF_ERROR(CheckDisjoint(tensor, &rectangles));
  for (const Rectangle& r : rectangles) covered += r.area();
  const int64_t missing = tensor.rows() * tensor.columns() - covered;
  if (missing == 0) return OkStatus();
  return FailedPreconditionError(Describe(tensor), ": ", missing, " of ",
                                 tensor.rows() * tensor.columns(), " elements are in no rank's ",
                                 "piece");
}

}  // namespace

Status CheckPiece(const TensorPiece& piece) {
  const TensorDescription& tensor = piece.tensor;
  const auto wrong = [&](const char* what) {
    return InvalidArgumentError("piece of ", Describe(tensor), ": ", what, " (block at ",
                                piece.first_row, ", ", piece.first_column, ", ", piece.columns,
                                " columns, elements ", piece.begin, " to ", piece.end, ")");
  };
  if (model::StDtypeBits(tensor.dtype) % 8 != 0) return wrong("elements are no whole bytes");
  if (piece.begin < 0 || piece.end < piece.begin) return wrong("ends before it begins");
  if (piece.num_elements() == 0) return OkStatus();
  if (tensor.shape.empty() || tensor.shape.size() > 2) return wrong("not one or two dimensions");
  if (piece.columns < 1 || piece.first_row < 0 || piece.first_column < 0) return wrong("negative");
  const int64_t last_row = piece.first_row + (piece.end - 1) / piece.columns;
  if (last_row >= tensor.rows() || piece.first_column + piece.columns > tensor.columns()) {
    return wrong("not inside the tensor");
  }
  return OkStatus();
}

void ForEachRun(
    const TensorPiece& piece,
    const std::function<void(int64_t in_tensor, int64_t in_piece, int64_t count)>& run) {
  const int64_t width = piece.tensor.columns();
  if (piece.columns == width) {
    run(piece.first_row * width + piece.begin, 0, piece.num_elements());
    return;
  }
  for (int64_t at = piece.begin; at < piece.end;) {
    const int64_t row = at / piece.columns, column = at % piece.columns;
    const int64_t count = std::min(piece.columns - column, piece.end - at);
    run((piece.first_row + row) * width + piece.first_column + column, at - piece.begin, count);
    at += count;
  }
}

Status CheckCover(const std::vector<TensorDescription>& tensors,
                  const std::vector<RankPiece>& pieces) {
  std::map<std::string_view, std::vector<const RankPiece*>> by_name;
  for (const TensorDescription& tensor : tensors) by_name[tensor.name];
  for (const RankPiece& one : pieces) {
    const auto found = by_name.find(one.piece.tensor.name);
    if (found == by_name.end()) {
      return FailedPreconditionError("rank ", one.rank, " has a piece of ",
                                     Describe(one.piece.tensor),
                                     ", which is no tensor of the model");
    }
    found->second.push_back(&one);
  }
  for (const TensorDescription& tensor : tensors) {
    CRIA_RETURN_IF_ERROR(CheckTensor(tensor, by_name[tensor.name]));
  }
  return OkStatus();
}

Status CheckIntervals(std::vector<Interval> whole, std::vector<Interval> parts,
                      const std::string& what) {
  for (std::vector<Interval>* list : {&whole, &parts}) {
    std::erase_if(*list, [](const Interval& i) { return i.begin >= i.end; });
    std::sort(list->begin(), list->end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  }
  size_t next = 0;
  for (const Interval& wanted : whole) {
    for (int64_t at = wanted.begin; at < wanted.end; at = parts[next++].end) {
      if (next == parts.size() || parts[next].begin > at) {
        return FailedPreconditionError(what, ": nothing for element ", at);
      }
      if (parts[next].begin < at) {
        return FailedPreconditionError(what, ": element ", parts[next].begin, " twice");
      }
      if (parts[next].end > wanted.end) {
        return FailedPreconditionError(what, ": element ", wanted.end, " is not there");
      }
    }
  }
  if (next == parts.size()) return OkStatus();
  return FailedPreconditionError(what, ": element ", parts[next].begin, " twice or not there");
}

}  // namespace cria::trainer
