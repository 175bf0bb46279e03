// Rows of activations, split over the ranks of a group: equal runs of rows, in rank order.
//
//   const RowSplit split(groups.tp.get());
//   CRIA_RETURN_IF_ERROR(split.Gather(x_RD));                    // own rows are in place
//   CRIA_RETURN_IF_ERROR(split.SumAndScatter(partial_RD, own_rD));
//
// Without a group (one rank) nothing moves: Gather does nothing, SumAndScatter's two tensors are
// the same memory. Thread-compatible. Errors: the communicator's.

#ifndef CRIA_MODEL_PARALLEL_ROW_SPLIT_H_
#define CRIA_MODEL_PARALLEL_ROW_SPLIT_H_

#include "base/status.h"
#include "comm/api/communicator.h"
#include "model/tensor.h"

namespace cria::model {

// The type of a tensor's elements on the wire.
comm::DataType WireType(DType dtype);

class RowSplit {
 public:
  explicit RowSplit(comm::Communicator* group) : group_(group) {}

  comm::Communicator* group() const { return group_; }
  int size() const { return group_ == nullptr ? 1 : group_->size(); }
  // This rank's rows of x, whose count is a multiple of size().
  Tensor Own(const Tensor& x) const;
  // Fills the other ranks' rows of x [R, C], contiguous.
  Status Gather(const Tensor& x) const;
  // own = this rank's rows of the sum of all ranks' `partial`.
  Status SumAndScatter(const Tensor& partial, const Tensor& own) const;

 private:
  comm::Communicator* const group_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_ROW_SPLIT_H_
