#include "model/parallel/row_split.h"

#include "base/check.h"

namespace cria::model {

comm::DataType WireType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return comm::DataType::kFloat32;
    case DType::kBF16:
      return comm::DataType::kBfloat16;
    case DType::kI32:
      return comm::DataType::kInt32;
    case DType::kI64:
      return comm::DataType::kInt64;
  }
  return comm::DataType::kUint8;
}

Tensor RowSplit::Own(const Tensor& x) const {
  if (group_ == nullptr) return x;
  CRIA_CHECK_EQ(x.dim(0) % group_->size(), 0);
  const int64_t rows = x.dim(0) / group_->size();
  return x.Rows(group_->rank() * rows, (group_->rank() + 1) * rows);
}

Status RowSplit::Gather(const Tensor& x) const {
  if (group_ == nullptr) return OkStatus();
  CRIA_CHECK(x.contiguous(), x.ToString());
  return group_
      ->AllGather({.input = Own(x).data(),
                   .output = x.data(),
                   .count = x.num_elements() / group_->size(),
                   .dtype = WireType(x.dtype())})
      .Wait();
}

Status RowSplit::SumAndScatter(const Tensor& partial, const Tensor& own) const {
  if (group_ == nullptr) {
    CRIA_CHECK(partial.data() == own.data(), partial.ToString());
    return OkStatus();
  }
  CRIA_CHECK(partial.contiguous() && own.contiguous(), partial.ToString());
  CRIA_CHECK_EQ(partial.num_elements(), own.num_elements() * group_->size());
  return group_
      ->ReduceScatter({.input = partial.data(),
                       .output = own.data(),
                       .count = own.num_elements(),
                       .dtype = WireType(partial.dtype())})
      .Wait();
}

}  // namespace cria::model
