// Which of its parameters a rank keeps, updates and counts, where ranks that share weights divide
// them (Shard). Arithmetic only.
//
//   const ParameterParts parts(layout, Shard::kWeights, /*replicas=*/4, /*replica=*/1);
//   const Tensor moments = arena->Alloc(DType::kF32, {parts.updated().num_elements()});
//   const BlockPart& mine = parts.updated().block(b);
//   moments.Rows(mine.at, mine.at + mine.size());     // of elements [mine.begin, mine.end)
//
// Each block (ParameterLayout::blocks) is divided by PartOf(block size, replicas, replica), in
// elements; parts may be uneven or empty. The block of norms is small and is never divided.
//
//   shard       weights  gradients  updated
//   kNone       whole    whole      whole
//   kOptimizer  whole    whole      parts
//   kGradients  whole    parts      parts
//   kWeights    parts    parts      parts
//
// Thread-safe after construction.

#ifndef CRIA_MODEL_PARALLEL_PARAMETER_PARTS_H_
#define CRIA_MODEL_PARALLEL_PARAMETER_PARTS_H_

#include <cstdint>
#include <vector>

#include "model/llama/parameters.h"
#include "model/parallel/mesh.h"

namespace cria::model {

// A stretch of one block.
struct BlockPart {
  int64_t begin = 0, end = 0;  // elements of the layout's buffer
  int64_t at = 0;              // where a buffer of such parts holds `begin`

  int64_t size() const { return end - begin; }
};

// What one kind of buffer holds: a stretch of each block, one after another.
class BlockParts {
 public:
  const BlockPart& block(int b) const { return parts_[static_cast<size_t>(b)]; }
  int num_blocks() const { return static_cast<int>(parts_.size()); }
  // Of the buffer. Where blocks are divided, gaps keep each part on a cache line.
  int64_t num_elements() const { return num_elements_; }
  bool whole() const { return whole_; }

 private:
  friend class ParameterParts;

  std::vector<BlockPart> parts_;
  int64_t num_elements_ = 0;
  bool whole_ = true;
};

class ParameterParts {
 public:
  ParameterParts(const ParameterLayout& layout, Shard shard, int replicas, int replica);

  // kNone where one rank has its weights alone.
  Shard shard() const { return shard_; }
  int replicas() const { return replicas_; }
  int replica() const { return replica_; }

  // What lies in memory between two steps, in fp32.
  const BlockParts& weights() const { return weights_; }
  // Where gradients add up.
  const BlockParts& gradients() const { return gradients_; }
  // What this rank's optimizer updates.
  const BlockParts& updated() const { return updated_; }
  // This rank's share of what all replicas hold, whatever the sharding: each element is counted by
  // one replica (in norms, in checkpoints). Among replicas alone: see Parameter::counted_elsewhere.
  const BlockParts& counted() const { return counted_; }
  // Elements of a block by replica.
  const std::vector<int64_t>& counts(int block) const {
    return counts_[static_cast<size_t>(block)];
  }

 private:
  BlockParts Divide(const ParameterLayout& layout, bool divided, bool norms_divided) const;

  Shard shard_;
  int replicas_, replica_;
  std::vector<std::vector<int64_t>> counts_;
  BlockParts weights_, gradients_, updated_, counted_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_PARAMETER_PARTS_H_
