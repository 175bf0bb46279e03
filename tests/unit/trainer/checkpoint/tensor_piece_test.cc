#include "trainer/checkpoint/tensor_piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"

namespace cria::trainer {
namespace {

TensorDescription Matrix(int64_t rows, int64_t columns) {
  return {.name = "w", .shape = {rows, columns}};
}

// How often pieces have each element, by the definition in the header.
std::vector<int> Count(const TensorDescription& tensor, const std::vector<RankPiece>& pieces) {
  std::vector<int> count(static_cast<size_t>(tensor.rows() * tensor.columns()));
  for (const RankPiece& one : pieces) {
    const TensorPiece& p = one.piece;
    for (int64_t i = p.begin; i < p.end; ++i) {
      const int64_t row = p.first_row + i / p.columns, column = p.first_column + i % p.columns;
      ++count[static_cast<size_t>(row * tensor.columns() + column)];
    }
  }
  return count;
}

// tp ranks split the columns or the rows, replicas divide each block; parts may be empty.
std::vector<RankPiece> Split(const TensorDescription& tensor, bool by_columns, int tp,
                             int replicas) {
  const auto bound = [](int64_t size, int parts, int i) { return size * i / parts; };
  std::vector<RankPiece> pieces;
  for (int t = 0; t < tp; ++t) {
    const int64_t rows =
        by_columns ? tensor.rows() : bound(tensor.rows(), tp, t + 1) - bound(tensor.rows(), tp, t);
    const int64_t columns =
        by_columns ? bound(tensor.columns(), tp, t + 1) - bound(tensor.columns(), tp, t)
                   : tensor.columns();
    for (int r = 0; r < replicas; ++r) {
      TensorPiece piece = {.tensor = tensor, .columns = columns};
      (by_columns ? piece.first_column : piece.first_row) =
          bound(by_columns ? tensor.columns() : tensor.rows(), tp, t);
      piece.begin = bound(rows * columns, replicas, r);
      piece.end = bound(rows * columns, replicas, r + 1);
      pieces.push_back({.rank = t * replicas + r, .piece = piece});
    }
  }
  return pieces;
}

TEST(TensorPieceTest, RunsAreTheElementsOfThePieceInOrder) {
  for (const auto& [rows, columns] : {std::pair{4, 6}, {1, 7}, {5, 1}, {9, 4}}) {
    for (const bool by_columns : {false, true}) {
      for (const RankPiece& one : Split(Matrix(rows, columns), by_columns, 3, 4)) {
        const TensorPiece& p = one.piece;
        int64_t next = 0;
        ForEachRun(p, [&](int64_t in_tensor, int64_t in_piece, int64_t count) {
          EXPECT_EQ(in_piece, next);
          for (int64_t i = 0; i < count; ++i, ++next) {
            const int64_t at = p.begin + next;
            const int64_t row = p.first_row + at / p.columns;
            const int64_t column = p.first_column + at % p.columns;
            EXPECT_EQ(in_tensor + i, row * columns + column);
          }
        });
        EXPECT_EQ(next, p.num_elements());
      }
    }
  }
}

TEST(TensorPieceTest, CoverIsExactWhereEachElementIsInOnePiece) {
  for (const int tp : {1, 2, 3, 8}) {
    for (const int replicas : {1, 2, 5, 40}) {
      for (const bool by_columns : {false, true}) {
        const TensorDescription tensor = Matrix(6, 5);
        const std::vector<RankPiece> pieces = Split(tensor, by_columns, tp, replicas);
        const Status status = CheckCover({tensor}, pieces);
        EXPECT_TRUE(status.ok()) << status;
      }
    }
  }
}

// Random changes of a right partition, judged by counting.
TEST(TensorPieceTest, CoverFailsExactlyWhereCountingDoes) {
  const Rng rng(3, StreamOf("covers"));
  uint64_t draw = 0;
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(rng.Below(draw++, static_cast<uint64_t>(n)));
  };
  int num_right = 0;
  for (int i = 0; i < 500; ++i) {
    SCOPED_TRACE(i);
    const TensorDescription tensor = Matrix(1 + below(5), 1 + below(5));
    std::vector<RankPiece> pieces = Split(tensor, below(2) == 0, 1 + static_cast<int>(below(3)),
                                          1 + static_cast<int>(below(3)));
    if (below(3) > 0) {
      TensorPiece& p =
          pieces[static_cast<size_t>(below(static_cast<int64_t>(pieces.size())))].piece;
      if (p.end > p.begin && below(2) == 0) --p.end;
      if (p.begin > 0 && below(2) == 0) --p.begin;
    }
    const std::vector<int> count = Count(tensor, pieces);
    const bool right = std::all_of(count.begin(), count.end(), [](int n) { return n == 1; });
    EXPECT_EQ(CheckCover({tensor}, pieces).ok(), right);
    num_right += right ? 1 : 0;
  }
  EXPECT_GT(num_right, 100);
  EXPECT_LT(num_right, 400);
}

TEST(TensorPieceTest, MessagesNameTheTensorAndTheRanks) {
  const TensorDescription tensor = Matrix(4, 3);
  const auto piece = [&](int rank, int64_t begin, int64_t end) {
    return RankPiece{.rank = rank,
                     .piece = {.tensor = tensor, .columns = 3, .begin = begin, .end = end}};
  };
  EXPECT_EQ(Message(CheckCover({tensor}, {piece(0, 0, 5), piece(7, 6, 12)})),
            "w F32 [4, 3]: 1 of 12 elements are in no rank's piece");
  EXPECT_EQ(Message(CheckCover({tensor}, {piece(0, 0, 6), piece(7, 5, 12)})),
            "w F32 [4, 3]: element [1, 2] is in the pieces of rank 0 and rank 7");
  RankPiece other = piece(2, 6, 12);
  other.piece.tensor.shape = {3, 4};
  EXPECT_EQ(Message(CheckCover({tensor}, {piece(0, 0, 6), other})),
            "w F32 [4, 3]: rank 2 has a piece of w F32 [3, 4]");
  EXPECT_EQ(Message(CheckCover({}, {piece(1, 0, 12)})),
            "rank 1 has a piece of w F32 [4, 3], which is no tensor of the model");
  EXPECT_EQ(CheckCover({tensor}, {}).code(), StatusCode::kFailedPrecondition);
}

TEST(TensorPieceTest, APieceOutsideItsTensorIsRefused) {
  const auto check = [](TensorPiece piece) {
    piece.tensor = {.name = "w", .shape = {4, 3}};
    return CheckPiece(piece);
  };
  EXPECT_TRUE(check({.columns = 3, .begin = 0, .end = 12}).ok());
  EXPECT_TRUE(check({.first_row = 9, .begin = 5, .end = 5}).ok());  // empty: nowhere
  EXPECT_FALSE(check({.columns = 3, .begin = 0, .end = 13}).ok());
  EXPECT_FALSE(check({.first_column = 1, .columns = 3, .begin = 0, .end = 3}).ok());
  EXPECT_FALSE(check({.first_row = 4, .columns = 3, .begin = 0, .end = 1}).ok());
  EXPECT_FALSE(check({.columns = 3, .begin = 2, .end = 1}).ok());
  EXPECT_FALSE(check({.columns = 0, .begin = 0, .end = 1}).ok());
}

TEST(IntervalsTest, TheSameElementsOnceInAnyOrder) {
  const auto check = [](std::vector<Interval> whole, std::vector<Interval> parts) {
    return Message(CheckIntervals(std::move(whole), std::move(parts), "m"));
  };
  EXPECT_EQ(check({{0, 4}, {8, 10}}, {{8, 10}, {2, 4}, {5, 5}, {0, 2}}), "");
  EXPECT_EQ(check({}, {}), "");
  EXPECT_EQ(check({{0, 4}}, {{0, 2}, {3, 4}}), "m: nothing for element 2");
  EXPECT_EQ(check({{0, 4}}, {{0, 3}}), "m: nothing for element 3");
  EXPECT_EQ(check({{0, 4}}, {{0, 3}, {2, 4}}), "m: element 2 twice");
  EXPECT_EQ(check({{0, 4}}, {{0, 5}}), "m: element 4 is not there");
  EXPECT_NE(check({{0, 4}}, {{0, 4}, {6, 7}}), "");
  EXPECT_NE(check({{0, 4}}, {{0, 4}, {0, 4}}), "");
}

}  // namespace
}  // namespace cria::trainer
