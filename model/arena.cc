#include "model/arena.h"

#include <sys/mman.h>

#include <utility>

#include "base/check.h"

namespace cria::model {

Arena::Arena(int64_t bytes) : capacity_bytes_(bytes) {
  CRIA_CHECK_GE(bytes, 0);
  if (bytes == 0) return;
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CRIA_CHECK(memory != MAP_FAILED, "map ", bytes, " bytes of memory");
  base_ = static_cast<char*>(memory);
}

Arena Arena::Over(void* memory, int64_t bytes) {
  CRIA_CHECK_EQ(reinterpret_cast<uintptr_t>(memory) % kAlignment, uintptr_t{0});
  Arena arena(0);
  arena.base_ = static_cast<char*>(memory);
  arena.owns_ = false;
  arena.capacity_bytes_ = bytes;
  return arena;
}

Arena::~Arena() {
  if (base_ != nullptr && owns_) munmap(base_, static_cast<size_t>(capacity_bytes_));
}

Arena::Arena(Arena&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      owns_(other.owns_),
      capacity_bytes_(other.capacity_bytes_),
      used_bytes_(other.used_bytes_) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(owns_, other.owns_);
  std::swap(capacity_bytes_, other.capacity_bytes_);
  std::swap(used_bytes_, other.used_bytes_);
  return *this;
}

Tensor Arena::Alloc(DType dtype, std::initializer_list<int64_t> dims) {
  const Tensor shape(nullptr, dtype, dims);
  const int64_t bytes = (shape.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  if (planning()) {
    used_bytes_ += bytes;
    return shape;
  }
  CRIA_CHECK(used_bytes_ + bytes <= capacity_bytes_, "arena of ", capacity_bytes_, " bytes has ",
             capacity_bytes_ - used_bytes_, " left; ", shape.ToString(), " needs ", bytes);
  Tensor tensor(base_ + used_bytes_, dtype, dims);
  used_bytes_ += bytes;
  return tensor;
}

}  // namespace cria::model
