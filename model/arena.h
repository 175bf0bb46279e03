// Arena: one block of memory for a model's buffers, or the plan of it.
//
//   Arena plan = Arena::Planning();
//   Activations::Allocate(config, &plan);            // counts only; nothing is allocated
//   Arena arena(plan.used_bytes());
//   Activations a = Activations::Allocate(config, &arena);   // the same code, now with memory
//
// The same allocating code runs twice, so that a plan (`cria train --plan`) can't differ from what
// is used. Memory is zero pages from the system, touched only when used. Allocations live as long
// as the arena. Thread-compatible.

#ifndef CRIA_MODEL_ARENA_H_
#define CRIA_MODEL_ARENA_H_

#include <cstdint>
#include <initializer_list>

#include "model/tensor.h"

namespace cria::model {

class Arena {
 public:
  // Counts; its tensors have no memory.
  static Arena Planning() { return Arena(); }

  // Owns `bytes` of zeroed memory. Aborts when the system has none (a plan comes first).
  explicit Arena(int64_t bytes);
  // Uses the caller's zeroed memory, aligned to kAlignment, which outlives it.
  static Arena Over(void* memory, int64_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A zeroed contiguous tensor, aligned to kAlignment. A CHECK fails when the arena is too small.
  Tensor Alloc(DType dtype, std::initializer_list<int64_t> dims);

  bool planning() const { return capacity_bytes_ < 0; }
  int64_t used_bytes() const { return used_bytes_; }

  // One cache line and one AVX-512 register.
  static constexpr int64_t kAlignment = 64;

 private:
  Arena() = default;

  char* base_ = nullptr;
  bool owns_ = true;
  int64_t capacity_bytes_ = -1;  // -1: planning
  int64_t used_bytes_ = 0;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_ARENA_H_
