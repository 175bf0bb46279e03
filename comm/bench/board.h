// A page of memory that all rank processes of a benchmark map: barriers and figures, without the
// libraries that are measured.
//
//   CRIA_ASSIGN_OR_RETURN(Board board, Board::Open(path, rank, size, timeout_s));
//   CRIA_RETURN_IF_ERROR(board.Barrier());
//   CRIA_ASSIGN_OR_RETURN(const double slowest_s, board.Max(my_seconds));
//
// Waiting ranks spin for a moment, then sleep (futex), so that more ranks than cores work. Every
// wait ends after timeout_s with DeadlineExceeded. One thread per process.

#ifndef CRIA_COMM_BENCH_BOARD_H_
#define CRIA_COMM_BENCH_BOARD_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace cria::comm {

class Board {
 public:
  static constexpr int kRanksMax = 512;

  // `path` is a file that all ranks open; the first makes it.
  static StatusOr<Board> Open(const std::string& path, int rank, int size, double timeout_s);
  Board(Board&& other) noexcept;
  Board& operator=(Board&&) = delete;
  ~Board();

  int rank() const { return rank_; }
  int size() const { return size_; }
  void set_timeout_s(double seconds) { timeout_s_ = seconds; }

  Status Barrier();
  // Every rank's value, by rank. A barrier.
  StatusOr<std::vector<double>> Gather(double mine);
  StatusOr<double> Max(double mine);
  StatusOr<double> Sum(double mine);
  // Seconds that a flag written by one rank takes to be seen by another: half a round trip between
  // ranks 0 and 1, the median of many. All ranks call it. 0 for one rank.
  StatusOr<double> FlagFlightSeconds();

 private:
  struct Page;

  Board(Page* page, int rank, int size, double timeout_s)
      : page_(page), rank_(rank), size_(size), timeout_s_(timeout_s) {}

  Page* page_;
  const int rank_;
  const int size_;
  double timeout_s_;
  uint32_t barriers_ = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_BOARD_H_
