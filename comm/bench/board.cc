#include "comm/bench/board.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "base/str.h"

namespace cria::comm {

struct Board::Page {
  // Barrier: arrivals of the current one, and the number of those that are over.
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> finished;
  alignas(64) std::atomic<uint32_t> ping;
  alignas(64) std::atomic<uint32_t> pong;
  struct alignas(64) Slot {
    double value;
  };
  Slot slots[kRanksMax];
};

namespace {

void FutexWait(std::atomic<uint32_t>* word, uint32_t value, double seconds) {
  const timespec limit = {
      static_cast<time_t>(seconds),
      static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

}  // namespace

StatusOr<Board> Board::Open(const std::string& path, int rank, int size, double timeout_s) {
  if (size > kRanksMax) return InvalidArgumentError(size, " ranks; at most ", kRanksMax);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return InternalError("open ", path, ": ", std::strerror(errno));
  // A new file reads as zeros, which is how everything starts.
  void* page = MAP_FAILED;
  if (ftruncate(fd, sizeof(Page)) == 0) {
    page = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  const int error = errno;
  close(fd);
  if (page == MAP_FAILED) return InternalError("map ", path, ": ", std::strerror(error));
  return Board(static_cast<Page*>(page), rank, size, timeout_s);
}

Board::Board(Board&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)),
      rank_(other.rank_),
      size_(other.size_),
      timeout_s_(other.timeout_s_),
      barriers_(other.barriers_) {}

Board::~Board() {
  if (page_ != nullptr) munmap(page_, sizeof(Page));
}

Status Board::Barrier() {
  constexpr int kSpins = 2000;
  const uint32_t before = barriers_++;
  if (page_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size_)) {
    page_->arrived.store(0, std::memory_order_relaxed);
    page_->finished.store(barriers_, std::memory_order_release);
    FutexWakeAll(&page_->finished);
    return OkStatus();
  }
  for (int i = 0; i < kSpins; ++i) {
    if (page_->finished.load(std::memory_order_acquire) != before) return OkStatus();
  }
  const double end_s = RealClock()->MonotonicSeconds() + timeout_s_;
  while (page_->finished.load(std::memory_order_acquire) == before) {
    const double left_s = end_s - RealClock()->MonotonicSeconds();
    if (left_s <= 0) {
      return DeadlineExceededError("rank ", rank_, ": other ranks did not come within ", timeout_s_,
                                   " s");
    }
    FutexWait(&page_->finished, before, std::min(left_s, 1.0));
  }
  return OkStatus();
}

StatusOr<std::vector<double>> Board::Gather(double mine) {
  page_->slots[rank_].value = mine;
  CRIA_RETURN_IF_ERROR(Barrier());
  std::vector<double> all;
  for (int r = 0; r < size_; ++r) all.push_back(page_->slots[r].value);
  // Nobody writes its next value before all have read these.
  CRIA_RETURN_IF_ERROR(Barrier());
  return all;
}

StatusOr<double> Board::Max(double mine) {
  CRIA_ASSIGN_OR_RETURN(const std::vector<double> all, Gather(mine));
  return *std::max_element(all.begin(), all.end());
}

StatusOr<double> Board::Sum(double mine) {
  CRIA_ASSIGN_OR_RETURN(const std::vector<double> all, Gather(mine));
  double sum = 0;
  for (const double value : all) sum += value;
  return sum;
}

StatusOr<double> Board::FlagFlightSeconds() {
  constexpr int kTrips = 200;
  constexpr int kSamples = 21;
  if (size_ < 2) return 0.0;
  CRIA_RETURN_IF_ERROR(Barrier());
  std::vector<double> samples;
  const double end_s = RealClock()->MonotonicSeconds() + timeout_s_;
  uint32_t number = page_->ping.load();
  CRIA_RETURN_IF_ERROR(Barrier());
  for (int sample = 0; sample < kSamples && rank_ < 2; ++sample) {
    const double start_s = RealClock()->MonotonicSeconds();
    for (int trip = 0; trip < kTrips; ++trip) {
      ++number;
      std::atomic<uint32_t>& mine = rank_ == 0 ? page_->ping : page_->pong;
      std::atomic<uint32_t>& other = rank_ == 0 ? page_->pong : page_->ping;
      if (rank_ == 0) mine.store(number, std::memory_order_release);
      for (uint32_t spins = 1; other.load(std::memory_order_acquire) != number; ++spins) {
        if (spins % (1 << 20) == 0 && RealClock()->MonotonicSeconds() > end_s) {
          return DeadlineExceededError("flag flight: the other rank does not answer");
        }
      }
      if (rank_ == 1) mine.store(number, std::memory_order_release);
    }
    samples.push_back((RealClock()->MonotonicSeconds() - start_s) / kTrips / 2);
  }
  double median = 0;
  if (rank_ < 2) {
    std::nth_element(samples.begin(), samples.begin() + kSamples / 2, samples.end());
    median = samples[kSamples / 2];
  }
  CRIA_ASSIGN_OR_RETURN(const std::vector<double> all, Gather(median));
  return all[0];
}

}  // namespace cria::comm
