#include "model/tensor.h"

#include "base/check.h"
#include "base/str.h"

namespace cria::model {

int64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 2;
    case DType::kI64:
      return 8;
    default:
      return 4;
  }
}

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "?";
}

Tensor::Tensor(void* data, DType dtype, std::initializer_list<int64_t> dims)
    : data_(data), dtype_(dtype), num_dims_(static_cast<int>(dims.size())) {
  CRIA_CHECK(num_dims_ >= 1 && num_dims_ <= kMaxDims, "dimensions: ", num_dims_);
  int i = 0;
  for (const int64_t dim : dims) {
    CRIA_CHECK_GE(dim, 0);
    dims_[i++] = dim;
  }
  int64_t stride = 1;
  for (i = num_dims_ - 1; i >= 0; --i) {
    strides_[i] = stride;
    stride *= dims_[i];
  }
}

int64_t Tensor::num_elements() const {
  if (num_dims_ == 0) return 0;
  int64_t n = 1;
  for (int i = 0; i < num_dims_; ++i) n *= dims_[i];
  return n;
}

bool Tensor::contiguous() const {
  int64_t stride = 1;
  for (int i = num_dims_ - 1; i >= 0; --i) {
    if (dims_[i] != 1 && strides_[i] != stride) return false;
    stride *= dims_[i];
  }
  return true;
}

Tensor Tensor::View(std::initializer_list<int64_t> dims) const {
  const Tensor view = Prefix(dims);
  CRIA_CHECK_EQ(view.num_elements(), num_elements());
  return view;
}

Tensor Tensor::Prefix(std::initializer_list<int64_t> dims) const {
  CRIA_CHECK(contiguous(), ToString(), " is strided");
  Tensor view(data_, dtype_, dims);
  view.placement_ = placement_;
  CRIA_CHECK_LE(view.num_elements(), num_elements());
  return view;
}

Tensor Tensor::Rows(int64_t begin, int64_t end) const {
  CRIA_CHECK(0 <= begin && begin <= end && end <= dims_[0], "rows ", begin, " to ", end, " of ",
             ToString());
  Tensor rows = *this;
  rows.dims_[0] = end - begin;
  if (data_ != nullptr) {
    rows.data_ = static_cast<char*>(data_) + begin * strides_[0] * DTypeBytes(dtype_);
  }
  return rows;
}

Tensor Tensor::Columns(int64_t begin, int64_t end) const {
  CRIA_CHECK_EQ(num_dims_, 2);
  CRIA_CHECK(0 <= begin && begin <= end && end <= dims_[1], "columns ", begin, " to ", end, " of ",
             ToString());
  Tensor columns = *this;
  columns.dims_[1] = end - begin;
  if (data_ != nullptr) columns.data_ = static_cast<char*>(data_) + begin * DTypeBytes(dtype_);
  return columns;
}

Tensor Tensor::Placed(Placement placement) const {
  Tensor placed = *this;
  placed.placement_ = placement;
  return placed;
}

std::string Tensor::ToString() const {
  std::string out = StrCat(DTypeName(dtype_), "[");
  for (int i = 0; i < num_dims_; ++i) out += StrCat(i == 0 ? "" : ", ", dims_[i]);
  return out + "]";
}

void Tensor::CheckType(DType wanted) const {
  CRIA_CHECK(dtype_ == wanted, "tensor is ", ToString(), ", used as ", DTypeName(wanted));
}

}  // namespace cria::model
