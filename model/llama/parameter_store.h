// Where a model's layers get their weights from and put their gradients, block by block
// (ParameterLayout::blocks). One rank, or ranks that all hold everything, keep whole buffers; ranks
// that share weights gather a block before it is used and drop it after.
//
//   CRIA_ASSIGN_OR_RETURN(Tensor w, store->Weights(block));     // waits for the gather
//   store->Prefetch(next_block);                                // starts the next one
//   ... store->Gradients(block) ...                             // added to
//   CRIA_RETURN_IF_ERROR(store->GradientsAdded(block, final));  // may reduce and drop them
//
// Single-threaded: the thread that trains.

#ifndef CRIA_MODEL_LLAMA_PARAMETER_STORE_H_
#define CRIA_MODEL_LLAMA_PARAMETER_STORE_H_

#include "base/status.h"
#include "model/tensor.h"

namespace cria::model {

class ParameterStore {
 public:
  virtual ~ParameterStore() = default;

  // The block's weights as GEMM operands, [block size] in the compute type. Valid until two other
  // blocks were asked for, or the weights changed.
  virtual StatusOr<Tensor> Weights(int block) = 0;
  // Where Weights of a layer's block are 8-bit numbers already: what its four products (qkv, out,
  // gate_up, down) are to be multiplied with. Null where weights are as they are.
  virtual const float* WeightFactors(int block) const = 0;
  // A hint that Weights(block) comes soon; no block when negative.
  virtual void Prefetch(int block) = 0;
  // The block of norms in fp32: always there.
  virtual Tensor Norms() = 0;
  // The block of the embedding as the look-up reads it: fp32.
  virtual StatusOr<Tensor> EmbeddingTable() = 0;

  // What the backward pass adds to, fp32 [block size] (64-bit fixed point in invariant numerics).
  // Valid until GradientsAdded of the block, or until two other blocks were asked for.
  virtual StatusOr<Tensor> Gradients(int block) = 0;
  // What was asked for has been added. Once or more for each micro-batch; `final` at the block's
  // last of the step, after which nothing is added until the next.
  virtual Status GradientsAdded(int block, bool final) = 0;

  // True while Weights of a block is the same memory with the same contents from step to step's
  // optimizer: a backend may keep a packed form of it.
  virtual bool keeps_weights() const = 0;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_PARAMETER_STORE_H_
