// ParameterBuffers: the memory of a rank's weights and gradients, and the traffic between ranks
// that share them. The ParameterStore of one rank and of every kind of sharding.
//
//   ParameterBuffers buffers(ParameterLayout(config, slice), {.compute_type = DType::kBF16},
//                            &groups, ops);
//   buffers.Initialize(seed);
//   ... a step:
//   buffers.ZeroGradients();
//   ... the model: Weights, Gradients, GradientsAdded, for each micro-batch ...
//   CRIA_RETURN_IF_ERROR(buffers.FinishGradients());
//   ... an optimizer changes UpdatedWeights(b) by UpdatedGradients(b), for each block b ...
//   CRIA_RETURN_IF_ERROR(buffers.GatherWeights());
//
// What lies where (parameter_parts.h has who owns which part; n elements, the largest layer's
// block has l, embedding and head v):
//
//   shard       fp32 weights  operands in bf16     gradients, fp32
//   kNone       n             n                    n
//   kOptimizer  n             n                    n
//   kGradients  n             n                    parts + 2 l + v
//   kWeights    parts         2 l in bf16, v       parts + 2 l + v
//
// In fp32 the weights themselves are the operands, and gathered blocks are fp32. In bf16 the fp32
// weights serve the optimizer, the look-up and the norms alone; up to kGradients each rank keeps
// them whole all the same, where others count them to the optimizer's state and divide them: with r
// replicas that is 4 n (1 - 1/r) bytes more here. kWeights divides them.
//
// Traffic of a step, of b bytes of fp32 weights on r replicas: gradients are summed by one
// all-reduce (kNone) or reduce-scatter (kOptimizer) of each block once its last micro-batch is
// done, while the backward pass goes on; kGradients and kWeights reduce-scatter each block after
// each micro-batch. Updated weights come back by all-gather: after the optimizer, or (kWeights) in
// the compute type before each use, one block ahead. Gradients of norms are then summed over the
// stage, of shared kv heads over their ranks, of a tied head over both its stages. Sums are fp32;
// every rank that holds a number gets the same bits.
//
// fixed_point: gradients are 64-bit fixed point until FinishGradients rounds each to fp32 once, so
// that no order of additions shows in them.
//
// Buffers that collectives read and write whole come from Communicator::Allocate, where ranks of a
// host read each other's memory in place: two to three times as fast as from private memory.
//
// Single-threaded; transfers run on the communicators' threads. Errors are the communicators'.

#ifndef CRIA_MODEL_PARALLEL_PARAMETER_BUFFERS_H_
#define CRIA_MODEL_PARALLEL_PARAMETER_BUFFERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "comm/api/work.h"
#include "model/arena.h"
#include "model/llama/parameter_store.h"
#include "model/llama/parameters.h"
#include "model/ops.h"
#include "model/parallel/fp8_weights.h"
#include "model/parallel/groups.h"
#include "model/parallel/parameter_parts.h"
#include "model/tensor.h"

namespace cria::model {

// Gradients in fixed point are multiples of 2^-50, below 2^13.
inline constexpr int kGradientLog2Scale = 50;

struct ParameterBuffersOptions {
  DType compute_type = DType::kF32;  // of GEMM operands: fp32 or bf16
  bool training = true;              // false: no gradients
  bool fixed_point = false;          // gradients are i64 until FinishGradients
  bool fp8_gather = false;           // kWeights: layers travel as 8-bit codes (fp8_weights.h)
};

// Bytes.
struct ParameterMemory {
  int64_t weights = 0;       // fp32
  int64_t compute_copy = 0;  // operands in bf16, gathered blocks
  int64_t gradients = 0;     // with the blocks on their way
  int64_t shared = 0;        // of these: in memory that ranks of a host share

  int64_t total() const { return weights + compute_copy + gradients; }
};

class ParameterBuffers final : public ParameterStore {
 public:
  // What a rank with these parts will use. Allocates nothing.
  static ParameterMemory Plan(const ParameterLayout& layout, const ParameterParts& parts,
                              const ParameterBuffersOptions& options);

  // `groups` may be null: one rank. It and `ops` outlive this object.
  ParameterBuffers(ParameterLayout layout, const ParameterBuffersOptions& options,
                   const Groups* groups, Ops* ops);
  // Waits for what is under way.
  ~ParameterBuffers() override;
  ParameterBuffers(const ParameterBuffers&) = delete;
  ParameterBuffers& operator=(const ParameterBuffers&) = delete;

  const ParameterLayout& layout() const { return layout_; }
  const ParameterParts& parts() const { return parts_; }
  const Groups* groups() const { return groups_; }
  bool fixed_point() const { return options_.fixed_point; }

  // The fp32 weights that this rank keeps, [parts().weights().num_elements()]: the layout's buffer,
  // or parts of it. Whoever changes them calls WeightsChanged.
  const Tensor& weights() const { return b_.weights; }
  // What weights() has of one of the layout's parameters: elements [begin, begin + n) of this
  // rank's part of it; n may be 0.
  struct Kept {
    int64_t begin = 0;
    Tensor values;  // fp32 [n]
  };
  Kept KeptOf(const Parameter& parameter) const;
  // Gradients as they add up, [parts().gradients().num_elements()], fp32 or i64.
  const Tensor& gradients() const { return b_.gradients; }

  // Initial values (InitializeParameters) of what this rank keeps.
  void Initialize(uint64_t seed);
  // weights() are new, on all ranks that share them: refreshes the operands.
  void WeightsChanged();
  // UpdatedWeights are new, on each rank its own: shares them, then as WeightsChanged.
  Status GatherWeights();

  // Before a step's first micro-batch.
  void ZeroGradients();
  // After the last one's backward pass, on all ranks of the stage: waits for the sums.
  Status FinishGradients();

  // The part of a block that this rank's optimizer updates, fp32 [parts().updated().block(b)
  // .size()]. Gradients are there after FinishGradients.
  Tensor UpdatedWeights(int b) const;
  Tensor UpdatedGradients(int b) const;

  // ParameterStore.
  StatusOr<Tensor> Weights(int block) override;
  void Prefetch(int block) override;
  Tensor Norms() override;
  StatusOr<Tensor> EmbeddingTable() override;
  StatusOr<Tensor> Gradients(int block) override;
  Status GradientsAdded(int block, bool final) override;
  bool keeps_weights() const override { return parts_.weights().whole(); }
  const float* WeightFactors(int block) const override;

 private:
  // Memory for one whole block, gathered or to be reduced.
  struct Slot {
    Tensor memory;
    Tensor codes;  // of an 8-bit gather, in bytes of this fp32 tensor
    bool encoded = false;
    int block = -1;  // whose block it is; -1: nobody's
    Tensor values;   // of the block, in `memory`
    bool reducing = false;
    comm::Work work;
  };
  // Two for layers, which take turns, one for embedding and head.
  struct Slots {
    Slot layers[2], vocabulary;
    int last_layer = 0;  // the one that was used last
  };
  struct Buffers {
    Tensor weights, operands, gradients;
    Tensor final_gradients;  // of fixed point: fp32, what this rank updates
    Slots gathered, reduced;
  };
  // Two kinds of memory: this rank's own, and what collectives use.
  struct Arenas {
    Arena own, shared;
  };
  static Buffers Allocate(const ParameterLayout& layout, const ParameterParts& parts,
                          const ParameterBuffersOptions& options, Arenas* arenas,
                          ParameterMemory* memory);
  Arenas MakeArenas();

  bool is_norms(int block) const { return block == layout_.norms_block(); }
  const ParameterBlock& BlockOf(int block) const {
    return layout_.blocks()[static_cast<size_t>(block)];
  }
  // Gradients of the part that this rank updates, in the type in which they add up.
  Tensor SummedGradients(int block) const;
  // The slot that has the block, or the one that it may take.
  Slot* SlotFor(Slots* slots, int block);

  StatusOr<Tensor> Gathered(int block, DType type);
  Status StartGather(Slot* slot, int block, DType type);
  // The same in 8 bits, and what becomes of the codes.
  Status StartFp8Gather(Slot* slot, int block);
  std::span<uint8_t> CodesOf(const Slot& slot) const;
  void DecodeGathered(Slot* slot);
  void ForgetGathered();
  Status GatherUpdated();

  Status StartReduction(int block);
  // Adds what came back of a slot's reduction to this rank's part.
  Status FinishReduction(Slot* slot);
  // Gradients of [begin, end) of the layout's buffer, as far as this rank updates it, summed over
  // the group; null: no sum.
  Status SumOver(comm::Communicator* group, int block, int64_t begin, int64_t end);
  Status SumSharedHeads();
  void RoundGradients();

  const ParameterLayout layout_;
  const ParameterBuffersOptions options_;
  const Groups* const groups_;
  Ops* const ops_;
  const ParameterParts parts_;
  std::unique_ptr<comm::SharedBuffer> segment_;
  Arenas arenas_;
  Buffers b_;
  std::optional<Fp8Weights> fp8_;
  bool rescaled_ = false;            // fp8_ knows the weights as they are
  Status prefetch_error_;            // told by the next Weights
  std::vector<comm::Work> pending_;  // reductions in gradients(), by block
  std::vector<bool> reduced_;        // those that were started in this step
};

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_PARAMETER_BUFFERS_H_
