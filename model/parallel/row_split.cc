#include "model/parallel/row_split.h"

#include "base/check.h"
#include "model/placement.h"

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
  CheckPlacement("own rows", "x", x.placement(), {Placement::kReplicate, Placement::kShard0});
  return OwnRows(x);
}

Tensor RowSplit::OwnRows(const Tensor& x) const {
  CRIA_CHECK_EQ(x.dim(0) % group_->size(), 0);
  const int64_t rows = x.dim(0) / group_->size();
  return x.Rows(group_->rank() * rows, (group_->rank() + 1) * rows).Placed(Placement::kShard0);
}

StatusOr<Tensor> RowSplit::Gather(const Tensor& x) const {
  const Tensor all = x.Placed(Placement::kReplicate);
  if (group_ == nullptr) return all;
  CheckPlacement("gather", "x", x.placement(), {Placement::kShard0});
  CRIA_CHECK(x.contiguous(), x.ToString());
  CRIA_RETURN_IF_ERROR(group_
                           ->AllGather({.input = Own(x).data(),
                                        .output = x.data(),
                                        .count = x.num_elements() / group_->size(),
                                        .dtype = WireType(x.dtype())})
                           .Wait());
  return all;
}

Status RowSplit::SumAndScatter(const Tensor& partial, const Tensor& own) const {
  if (group_ == nullptr) {
    CRIA_CHECK(partial.data() == own.data(), partial.ToString());
    return OkStatus();
  }
  CheckPlacement("sum and scatter", "partial", partial.placement(), {Placement::kPartial});
  CheckPlacement("sum and scatter", "own", own.placement(), {Placement::kShard0});
  CRIA_CHECK(partial.contiguous() && own.contiguous(), partial.ToString());
  CRIA_CHECK_EQ(partial.num_elements(), own.num_elements() * group_->size());
  return group_
      ->ReduceScatter({.input = partial.data(),
                       .output = own.data(),
                       .count = own.num_elements(),
                       .dtype = WireType(partial.dtype())})
      .Wait();
}

StatusOr<Tensor> RowSplit::SumInPlace(const Tensor& partial) const {
  const Tensor own = group_ == nullptr ? partial : OwnRows(partial);
  CRIA_RETURN_IF_ERROR(SumAndScatter(partial, own));
  return own;
}

}  // namespace cria::model
