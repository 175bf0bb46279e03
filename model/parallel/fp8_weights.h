// The matrices of layers as 8-bit codes, for ranks that gather them: half the bytes of bf16.
//
//   Fp8Weights fp8(layout, ops);
//   CRIA_RETURN_IF_ERROR(fp8.Rescale(parts, weights, group));   // when weights have changed
//   fp8.Encode(block, part, values_bf16, codes);                // this rank's part; then gathered
//   fp8.Decode(codes, values_bf16);
//
// Tensorwise: one scale for each matrix product of a layer (qkv, out, gate_up, down), from the
// largest magnitude over all ranks that hold parts of it. Values and factors are what quantising
// the whole bf16 matrix gives (model/fp8/quantize.h), bit for bit. A weight that is not finite
// makes its factor NaN, and with it the loss. Single-threaded; threads inside.

#ifndef CRIA_MODEL_PARALLEL_FP8_WEIGHTS_H_
#define CRIA_MODEL_PARALLEL_FP8_WEIGHTS_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "model/llama/parameters.h"
#include "model/ops.h"
#include "model/parallel/parameter_parts.h"
#include "model/tensor.h"

namespace cria::model {

class Fp8Weights {
 public:
  static constexpr int kProducts = 4;

  Fp8Weights(const ParameterLayout& layout, Ops* ops);

  // New scales. `weights` is what this rank keeps by `parts`; `group` holds the other parts of the
  // same matrices.
  Status Rescale(const BlockParts& parts, const Tensor& weights, comm::Communicator* group);
  // Elements [part.begin, part.end) of a layer's block, bf16 in `values`: become 8-bit numbers
  // there, and their codes.
  void Encode(int block, const BlockPart& part, const Tensor& values, std::span<uint8_t> codes);
  void Decode(std::span<const uint8_t> codes, const Tensor& values) const;
  // What the products of the block are to be multiplied with, in the order above.
  const std::array<float, kProducts>& Factors(int block) const {
    return factors_[static_cast<size_t>(block)];
  }

 private:
  // Of a product in its block: elements of the layout's buffer.
  Range RangeOf(int block, int product) const;
  bool IsLayer(int block) const;

  const ParameterLayout& layout_;
  Ops* const ops_;
  // By block; those of other blocks than layers are not used.
  std::vector<std::array<float, kProducts>> scales_, factors_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_FP8_WEIGHTS_H_
