#include "model/parallel/parameter_parts.h"

#include "base/check.h"

namespace cria::model {
namespace {

// A cache line of fp32.
constexpr int64_t kAlignedElements = 16;

int64_t AlignUp(int64_t n) {
  return (n + kAlignedElements - 1) / kAlignedElements * kAlignedElements;
}

}  // namespace

ParameterParts::ParameterParts(const ParameterLayout& layout, Shard shard, int replicas,
                               int replica)
    : shard_(replicas > 1 ? shard : Shard::kNone), replicas_(replicas), replica_(replica) {
  CRIA_CHECK(0 <= replica && replica < replicas, "replica ", replica, " of ", replicas);
  for (const ParameterBlock& block : layout.blocks()) {
    std::vector<int64_t>& counts = counts_.emplace_back();
    for (int i = 0; i < replicas; ++i) counts.push_back(PartOf(block.size(), replicas, i).size());
  }
  weights_ = Divide(layout, shard_ >= Shard::kWeights, false);
  gradients_ = Divide(layout, shard_ >= Shard::kGradients, false);
  updated_ = Divide(layout, shard_ >= Shard::kOptimizer, false);
  counted_ = Divide(layout, true, true);
}

BlockParts ParameterParts::Divide(const ParameterLayout& layout, bool divided,
                                  bool norms_divided) const {
  BlockParts out;
  out.whole_ = !divided;
  for (const ParameterBlock& block : layout.blocks()) {
    const bool norms = block.kind == ParameterBlock::Kind::kNorms;
    BlockPart part = {block.begin, block.end, block.begin};
    if (divided) {
      if (!norms || norms_divided) {
        const Range range = PartOf(block.size(), replicas_, replica_);
        part.begin = block.begin + range.begin;
        part.end = block.begin + range.end;
      }
      part.at = AlignUp(out.num_elements_);
    }
    out.num_elements_ = part.at + part.size();
    out.parts_.push_back(part);
  }
  return out;
}

}  // namespace cria::model
