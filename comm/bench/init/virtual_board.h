// What the processes of a virtual job share: a page of memory made before they are forked.
//
//   CRIA_ASSIGN_OR_RETURN(auto board, VirtualBoard::Create());
//   board->Fail(status);  if (board->failed()) ...
//
// Thread-safe, across processes; only lock-free atomics.

#ifndef CRIA_COMM_BENCH_INIT_VIRTUAL_BOARD_H_
#define CRIA_COMM_BENCH_INIT_VIRTUAL_BOARD_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "comm/rendezvous/frame_socket.h"

namespace cria::comm {

inline constexpr int kVirtualWorkersMax = 64;

// What one worker reports at its end.
struct VirtualReport {
  double map_s = 0;   // when it saw the last rank of the job have its map
  double done_s = 0;  // when it saw the last rank of the job done
  double cpu_s = 0;   // of this worker until then
  int rounds = 0;
  WireCounters counters = {};
  int64_t map_bytes = 0;
  double decode_s = 0;
};

class VirtualBoard {
 public:
  struct Unmap {
    void operator()(VirtualBoard* board) const;
  };
  static StatusOr<std::unique_ptr<VirtualBoard, Unmap>> Create();

  // The first error is kept and ends the job.
  void Fail(const Status& status);
  bool failed() const { return error_state_.load(std::memory_order_acquire) != kNone; }
  // The error, OK when there is none.
  Status failure() const;

  std::atomic<int> num_with_map{0};
  std::atomic<int> num_done{0};
  std::atomic<int> num_ready{0};
  std::atomic<int> master_port{0};
  std::atomic<bool> go{false};
  std::array<VirtualReport, kVirtualWorkersMax> reports =
      {};  // each by its worker, read at its end

 private:
  enum ErrorState : int { kNone, kWriting, kWritten };

  VirtualBoard() = default;

  std::atomic<int> error_state_{kNone};
  int error_code_ = 0;
  std::array<char, 2048> error_text_ = {};
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_INIT_VIRTUAL_BOARD_H_
