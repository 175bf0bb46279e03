// Tensor: a view of numbers in memory. It owns nothing, computes nothing and has no autograd.
//
//   Tensor x_BTD = arena.Alloc(DType::kBF16, {batch, time, dim});
//   Tensor x_RD = x_BTD.View({batch * time, dim});      // contiguous tensors only
//   Tensor q_RD = qkv_RE.Columns(0, heads * head_dim);  // strided: rows keep their distance
//
// Strides count elements; the last dimension has stride 1 everywhere in this project. A tensor
// knows how it is divided over ranks (model/placement.h): replicate, unless Placed says else; views
// pass it on. Thread-safe as values are; the memory behind it belongs to an Arena or a caller's
// buffer that must outlive it.

#ifndef CRIA_MODEL_TENSOR_H_
#define CRIA_MODEL_TENSOR_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "model/placement.h"

namespace cria::model {

// bf16 is the upper half of an fp32; kept as a type of its own so that overloads can tell it.
struct BF16 {
  uint16_t bits;
};

enum class DType : uint8_t { kF32, kBF16, kI32, kI64 };

int64_t DTypeBytes(DType dtype);
const char* DTypeName(DType dtype);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};

template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};

inline constexpr int kMaxDims = 4;

class Tensor {
 public:
  Tensor() = default;  // empty: defined() is false

  // A contiguous row-major view of `data`.
  Tensor(void* data, DType dtype, std::initializer_list<int64_t> dims);

  bool defined() const { return num_dims_ > 0; }
  DType dtype() const { return dtype_; }
  int num_dims() const { return num_dims_; }
  // Size of dimension i.
  int64_t dim(int i) const { return dims_[i]; }
  // Elements between neighbours along dimension i.
  int64_t stride(int i) const { return strides_[i]; }
  int64_t num_elements() const;
  int64_t bytes() const { return num_elements() * DTypeBytes(dtype_); }
  bool contiguous() const;

  void* data() const { return data_; }
  // The elements, type-checked.
  template <typename T>
  T* as() const {
    CheckType(DTypeOf<T>::value);
    return static_cast<T*>(data_);
  }
  float* f32() const { return as<float>(); }
  BF16* bf16() const { return as<BF16>(); }
  int32_t* i32() const { return as<int32_t>(); }
  int64_t* i64() const { return as<int64_t>(); }

  // The same elements under other dimensions. Contiguous tensors only; equal element counts.
  Tensor View(std::initializer_list<int64_t> dims) const;
  // The contiguous first elements under other dimensions; needs no more than there are.
  Tensor Prefix(std::initializer_list<int64_t> dims) const;
  // Rows [begin, end) of the first dimension.
  Tensor Rows(int64_t begin, int64_t end) const;
  // Columns [begin, end) of a two-dimensional tensor; row stride unchanged.
  Tensor Columns(int64_t begin, int64_t end) const;

  Placement placement() const { return placement_; }
  // The same memory in another role.
  Tensor Placed(Placement placement) const;

  // "bf16[2048, 288]".
  std::string ToString() const;

 private:
  void CheckType(DType wanted) const;

  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Placement placement_ = Placement::kReplicate;
  int num_dims_ = 0;
  std::array<int64_t, kMaxDims> dims_{};
  std::array<int64_t, kMaxDims> strides_{};
};

}  // namespace cria::model

#endif  // CRIA_MODEL_TENSOR_H_
