#include "model/parallel/parameter_parts.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/str.h"

namespace cria::model {
namespace {

LlamaConfig Config() {
  return {.layers = 2,
          .dim = 6,
          .heads = 2,
          .kv_heads = 1,
          .ffn = 5,
          .vocab = 7,
          .max_positions = 32,
          .rope_scaling = {},
          .tied_head = false};
}

// How often the replicas' parts hold each element of the layout's buffer.
std::vector<int> Cover(const ParameterLayout& layout, Shard shard, int replicas,
                       const BlockParts& (ParameterParts::*kind)() const) {
  std::vector<int> cover(static_cast<size_t>(layout.num_elements()));
  for (int r = 0; r < replicas; ++r) {
    const ParameterParts parts(layout, shard, replicas, r);
    const BlockParts& mine = (parts.*kind)();
    int64_t used = 0;
    for (int b = 0; b < mine.num_blocks(); ++b) {
      const BlockPart& part = mine.block(b);
      EXPECT_GE(part.at, used) << "parts overlap in the buffer";
      used = part.at + part.size();
      for (int64_t i = part.begin; i < part.end; ++i) ++cover[static_cast<size_t>(i)];
    }
    EXPECT_EQ(used, mine.num_elements());
  }
  return cover;
}

void ExpectCover(const std::vector<int>& cover, const ParameterLayout& layout, int matrices,
                 int norms) {
  const int64_t first_norm = layout.blocks().back().begin;
  for (size_t i = 0; i < cover.size(); ++i) {
    ASSERT_EQ(cover[i], static_cast<int64_t>(i) < first_norm ? matrices : norms) << i;
  }
}

TEST(ParameterPartsTest, EachKindDividesWhatItSaysItDivides) {
  const ParameterLayout layout(Config());
  for (const int replicas : {1, 2, 3, 5, 64}) {  // 64: parts of a few elements, the last are empty
    for (const Shard shard :
         {Shard::kNone, Shard::kOptimizer, Shard::kGradients, Shard::kWeights}) {
      SCOPED_TRACE(StrCat(Name(shard), " on ", replicas));
      const auto times = [&](Shard from) { return shard >= from ? 1 : replicas; };
      ExpectCover(Cover(layout, shard, replicas, &ParameterParts::updated), layout,
                  times(Shard::kOptimizer), replicas);
      ExpectCover(Cover(layout, shard, replicas, &ParameterParts::gradients), layout,
                  times(Shard::kGradients), replicas);
      ExpectCover(Cover(layout, shard, replicas, &ParameterParts::weights), layout,
                  times(Shard::kWeights), replicas);
      ExpectCover(Cover(layout, shard, replicas, &ParameterParts::counted), layout, 1, 1);
    }
  }
}

TEST(ParameterPartsTest, CountsAreTheReplicasParts) {
  const ParameterLayout layout(Config());
  const int replicas = 5;
  for (int r = 0; r < replicas; ++r) {
    const ParameterParts parts(layout, Shard::kWeights, replicas, r);
    for (int b = 0; b < layout.norms_block(); ++b) {
      EXPECT_EQ(parts.counts(b)[static_cast<size_t>(r)], parts.updated().block(b).size());
    }
  }
}

TEST(ParameterPartsTest, OneReplicaHasEverythingWhereTheLayoutHasIt) {
  const ParameterLayout layout(Config());
  const ParameterParts parts(layout, Shard::kWeights, 1, 0);
  EXPECT_EQ(parts.shard(), Shard::kNone);
  EXPECT_TRUE(parts.weights().whole());
  EXPECT_EQ(parts.weights().num_elements(), layout.num_elements());
  for (int b = 0; b <= layout.norms_block(); ++b) {
    EXPECT_EQ(parts.weights().block(b).at, layout.blocks()[static_cast<size_t>(b)].begin);
  }
}

}  // namespace
}  // namespace cria::model
