#include "comm/bench/init/virtual_board.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>

namespace cria::comm {

StatusOr<std::unique_ptr<VirtualBoard, VirtualBoard::Unmap>> VirtualBoard::Create() {
  void* page = mmap(nullptr, sizeof(VirtualBoard), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return ErrnoError(errno, "map a shared page");
  return std::unique_ptr<VirtualBoard, Unmap>(new (page) VirtualBoard());
}

void VirtualBoard::Unmap::operator()(VirtualBoard* board) const {
  board->~VirtualBoard();
  munmap(board, sizeof(VirtualBoard));
}

void VirtualBoard::Fail(const Status& status) {
  int expected = kNone;
  if (!error_state_.compare_exchange_strong(expected, kWriting)) return;
  error_code_ = static_cast<int>(status.code());
  const std::string text = Message(status);
  std::copy_n(text.data(), std::min(text.size(), error_text_.size() - 1), error_text_.data());
  error_state_.store(kWritten, std::memory_order_release);
}

Status VirtualBoard::failure() const {
  const int state = error_state_.load(std::memory_order_acquire);
  if (state == kNone) return OkStatus();
  // Its writer died between two instructions.
  if (state == kWriting) return InternalError("a worker died while it reported an error");
  return Status(static_cast<StatusCode>(error_code_), error_text_.data());
}

}  // namespace cria::comm
