// Rows of activations, split over the ranks of tensor parallelism: equal runs of rows, in rank
// order.
//
//   const RowSplit split(groups.tp.get());
//   CRIA_ASSIGN_OR_RETURN(const Tensor all_RD, split.Gather(x_RD));  // own rows are in place
//   CRIA_RETURN_IF_ERROR(split.SumAndScatter(partial_RD, own_rD));
//
// Memory whose rows are still to be gathered is shard(0) (model/placement.h): only what Gather
// returns may be used as a whole. Without a group (one rank) nothing moves and no placement is
// checked: Gather gives its argument, SumAndScatter's two tensors are the same memory.
// Thread-compatible. Errors: the communicator's; a wrong placement is our bug (CHECK).

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
  // Fills the other ranks' rows of x [R, C], contiguous. The same memory, replicate.
  StatusOr<Tensor> Gather(const Tensor& x) const;
  // own = this rank's rows of the sum of all ranks' `partial`.
  Status SumAndScatter(const Tensor& partial, const Tensor& own) const;
  // The same in place: `own` is this rank's rows of `partial`, whose others are used up.
  StatusOr<Tensor> SumInPlace(const Tensor& partial) const;

 private:
  // Whatever x is.
  Tensor OwnRows(const Tensor& x) const;

  comm::Communicator* const group_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_ROW_SPLIT_H_
