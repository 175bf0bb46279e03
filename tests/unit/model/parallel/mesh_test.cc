#include "model/parallel/mesh.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace cria::model {
namespace {

std::vector<Layout> AllLayouts() {
  std::vector<Layout> layouts;
  for (int tp = 1; tp <= 4; ++tp) {
    for (int cp = 1; cp <= 3; ++cp) {
      for (int pp = 1; pp <= 4; ++pp) {
        for (int dp = 1; dp <= 3; ++dp) {
          layouts.push_back({.tp = tp, .cp = cp, .pp = pp, .dp = dp});
        }
      }
    }
  }
  return layouts;
}

bool Agree(const Coordinates& a, const Coordinates& b, const std::set<Axis>& free) {
  return (a.tp == b.tp || free.count(Axis::kTp)) && (a.cp == b.cp || free.count(Axis::kCp)) &&
         (a.pp == b.pp || free.count(Axis::kPp)) && (a.dp == b.dp || free.count(Axis::kDp));
}

std::vector<int> SearchRanks(const Layout& layout, int rank, const std::set<Axis>& free) {
  std::vector<int> ranks;
  for (int r = 0; r < layout.world_size(); ++r) {
    if (Agree(CoordinatesOf(layout, r), CoordinatesOf(layout, rank), free)) ranks.push_back(r);
  }
  return ranks;
}

LlamaConfig Model(int64_t layers) {
  LlamaConfig config;
  config.layers = layers;
  config.dim = 64;
  config.heads = 8;
  config.kv_heads = 2;
  config.ffn = 96;
  config.vocab = 259;
  return config;
}

std::string ErrorOf(const Layout& layout, const LlamaConfig& config, int64_t seq) {
  const Status status = CheckLayout(layout, config, seq, "job.yaml: parallel");
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
  return Message(status);
}

TEST(MeshTest, RanksOfThePapersOrder) {
  const Layout layout = {.tp = 2, .cp = 1, .pp = 2, .dp = 2};
  EXPECT_EQ(CoordinatesOf(layout, 5), (Coordinates{.tp = 1, .cp = 0, .pp = 0, .dp = 1}));
  EXPECT_EQ(RanksAlong(layout, 5, {Axis::kTp}), (std::vector<int>{4, 5}));
  EXPECT_EQ(RanksAlong(layout, 5, {Axis::kPp}), (std::vector<int>{5, 7}));
  EXPECT_EQ(RanksAlong(layout, 5, {Axis::kCp, Axis::kDp}), (std::vector<int>{1, 5}));
  EXPECT_EQ(RanksAlong(layout, 5, {}), (std::vector<int>{5}));
  // Table 4 of the paper, 16,384 GPUs: the next pipeline stage is 8 ranks on, the next replica 128.
  const Layout large = {.tp = 8, .cp = 1, .pp = 16, .dp = 128};
  EXPECT_EQ(large.world_size(), 16384);
  EXPECT_EQ(RankAt(large, {.tp = 3, .pp = 1}), 11);
  EXPECT_EQ(RankAt(large, {.tp = 3, .dp = 1}), 131);
}

TEST(MeshTest, CoordinatesAndRanksAreInverse) {
  for (const Layout& layout : AllLayouts()) {
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      EXPECT_EQ(RankAt(layout, CoordinatesOf(layout, rank)), rank) << Name(layout);
    }
  }
}

TEST(MeshTest, RanksAlongIsWhatASearchFinds) {
  for (const Layout& layout : AllLayouts()) {
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      EXPECT_EQ(RanksAlong(layout, rank, {Axis::kPp}), SearchRanks(layout, rank, {Axis::kPp}));
      EXPECT_EQ(RanksAlong(layout, rank, {Axis::kDp, Axis::kCp}),
                SearchRanks(layout, rank, {Axis::kCp, Axis::kDp}));
      EXPECT_EQ(RanksAlong(layout, rank, {Axis::kTp, Axis::kCp, Axis::kDp}),
                SearchRanks(layout, rank, {Axis::kTp, Axis::kCp, Axis::kDp}));
      EXPECT_EQ(RanksAlong(layout, rank, {Axis::kTp, Axis::kCp, Axis::kPp, Axis::kDp}).size(),
                static_cast<size_t>(layout.world_size()));
    }
  }
}

TEST(MeshTest, LayersCoverTheModelInOrder) {
  for (int pp = 1; pp <= 5; ++pp) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int64_t layers = 1; layers <= 40; ++layers) {
        for (const bool short_ends : {false, true}) {
          const Layout layout = {.pp = pp, .pp_chunks = chunks, .pp_short_ends = short_ends};
          if (!CheckLayout(layout, Model(layers), 64, "x").ok()) continue;
          int64_t next = 0;
          const int64_t stages = int64_t{pp} * chunks;
          const int64_t places = layers + (short_ends ? 2 : 0);
          for (int64_t stage = 0; stage < stages; ++stage) {
            const auto p = static_cast<int>(stage % pp), c = static_cast<int>(stage / pp);
            const LayerRange range = LayersOf(layout, layers, p)[static_cast<size_t>(c)];
            EXPECT_EQ(range.begin, next) << Name(layout) << " layers " << layers;
            const int64_t ends = (stage == 0) + (stage + 1 == stages);
            EXPECT_EQ(range.size(), places / stages + (stage < places % stages ? 1 : 0) -
                                        (short_ends ? ends : 0));
            EXPECT_GE(range.size(), 0);
            next = range.end;
          }
          EXPECT_EQ(next, layers) << Name(layout);
        }
      }
    }
  }
}

TEST(MeshTest, ShortEndsOfThePaper) {
  const Layout layout = {.pp = 16, .pp_short_ends = true};
  EXPECT_EQ(LayersOf(layout, 126, 0), (std::vector<LayerRange>{{0, 7}}));
  EXPECT_EQ(LayersOf(layout, 126, 1), (std::vector<LayerRange>{{7, 15}}));
  EXPECT_EQ(LayersOf(layout, 126, 15), (std::vector<LayerRange>{{119, 126}}));
  // One layer a chunk: the first holds the embedding alone, the last the head alone.
  const Layout interleaved = {.pp = 16, .pp_chunks = 8, .pp_short_ends = true};
  EXPECT_EQ(LayersOf(interleaved, 126, 0).front(), (LayerRange{0, 0}));
  EXPECT_EQ(LayersOf(interleaved, 126, 0).back(), (LayerRange{111, 112}));
  EXPECT_EQ(LayersOf(interleaved, 126, 15).back(), (LayerRange{126, 126}));
}

TEST(MeshTest, PartsAreEqualRoundedUp) {
  EXPECT_EQ(PartOf(259, 2, 0), (Range{0, 130}));
  EXPECT_EQ(PartOf(259, 2, 1), (Range{130, 259}));
  EXPECT_EQ(PartOf(5, 4, 2), (Range{4, 5}));
  EXPECT_EQ(PartOf(5, 4, 3), (Range{5, 5}));
  EXPECT_EQ(PartOf(0, 3, 2), (Range{0, 0}));
  for (int64_t size = 0; size < 50; ++size) {
    for (int parts = 1; parts < 9; ++parts) {
      int64_t next = 0;
      for (int i = 0; i < parts; ++i) {
        EXPECT_EQ(PartOf(size, parts, i).begin, next);
        next = PartOf(size, parts, i).end;
      }
      EXPECT_EQ(next, size);
    }
  }
}

TEST(MeshTest, KvHeadsAreSplitOrSharedByNeighbours) {
  const LlamaConfig config = Model(4);  // 8 heads, 2 kv heads
  EXPECT_EQ(KvHeadsOf(config, {.tp = 1}, 0), (Range{0, 2}));
  EXPECT_EQ(KvHeadsOf(config, {.tp = 2}, 1), (Range{1, 2}));
  EXPECT_EQ(KvReplicas(config, {.tp = 2}), 1);
  EXPECT_EQ(KvReplicas(config, {.tp = 8}), 4);
  // Query head h uses kv head h / 4: a rank holds the kv heads of all its query heads.
  for (const int tp : {1, 2, 4, 8}) {
    for (int rank = 0; rank < tp; ++rank) {
      const Range heads = PartOf(config.heads, tp, rank);
      const Range kv = KvHeadsOf(config, {.tp = tp}, rank);
      EXPECT_EQ(kv.begin, heads.begin / 4) << tp;
      EXPECT_EQ(kv.end, (heads.end - 1) / 4 + 1) << tp;
    }
  }
}

TEST(MeshTest, ImpossibleLayoutsNameBothNumbers) {
  const LlamaConfig config = Model(6);
  EXPECT_EQ(ErrorOf({}, config, 257), "");
  EXPECT_EQ(ErrorOf({.tp = 8, .cp = 2, .pp = 6, .dp = 5}, config, 64), "");
  EXPECT_EQ(ErrorOf({.tp = 3}, config, 64),
            "job.yaml: parallel.tp: 3 ranks can't share 8 heads equally");
  LlamaConfig more_kv = config;
  more_kv.heads = 12;
  more_kv.kv_heads = 6;
  EXPECT_EQ(ErrorOf({.tp = 4}, more_kv, 64),
            "job.yaml: parallel.tp: of 4 ranks and 6 kv heads, neither divides the other");
  LlamaConfig odd_ffn = config;
  odd_ffn.ffn = 98;
  EXPECT_EQ(ErrorOf({.tp = 4}, odd_ffn, 64),
            "job.yaml: parallel.tp: 4 ranks can't share 98 channels of the feed-forward network "
            "equally");
  LlamaConfig few_words = config;
  few_words.vocab = 9;
  EXPECT_EQ(ErrorOf({.tp = 8}, few_words, 64),
            "job.yaml: parallel.tp: a vocabulary of 9 in 8 parts leaves the last rank with none");
  EXPECT_EQ(ErrorOf({.pp = 4, .pp_chunks = 2}, config, 64),
            "job.yaml: parallel.pp: 6 layers are too few for 8 stages (pp 4 x pp_chunks 2)");
  EXPECT_EQ(ErrorOf({.pp = 4, .pp_chunks = 2, .pp_short_ends = true}, config, 64), "");
  EXPECT_EQ(ErrorOf({.pp_chunks = 2}, config, 64),
            "job.yaml: parallel.pp_chunks: 2 chunks need a pipeline; pp is 1");
  EXPECT_EQ(ErrorOf({.cp = 2}, config, 66),
            "job.yaml: parallel.cp: 2 ranks can't cut a sequence of 66 tokens into 4 equal chunks");
  EXPECT_EQ(ErrorOf({.tp = 8, .cp = 2}, config, 80),
            "job.yaml: parallel.tp: 8 ranks can't share the 20 rows of a sequence's chunk equally");
  EXPECT_EQ(ErrorOf({.tp = 4}, config, 66),
            "job.yaml: parallel.tp: 4 ranks can't share the 66 rows of a sequence equally");
}

TEST(MeshTest, SizesUnderOneAndTooManyRanksAreErrors) {
  const LlamaConfig config = Model(6);
  EXPECT_EQ(ErrorOf({.tp = 0}, config, 64), "job.yaml: parallel.tp: 0 is under 1");
  EXPECT_EQ(ErrorOf({.dp = -3}, config, 64), "job.yaml: parallel.dp: -3 is under 1");
  EXPECT_EQ(ErrorOf({.pp_group = -1}, config, 64), "job.yaml: parallel.pp_group: -1 is under 0");
  EXPECT_EQ(ErrorOf({.cp = 1 << 15, .dp = 1 << 15}, config, 1 << 16),
            "job.yaml: parallel: tp 1, cp 32768, pp 1, dp 32768 are more than 1048576 ranks");
}

TEST(MeshTest, NamesSayWhatIsNotTheDefault) {
  EXPECT_EQ(Name(Layout{.tp = 2, .pp = 4}), "tp2 cp1 pp4 dp1");
  EXPECT_EQ(
      Name(Layout{.shard = Shard::kWeights, .pp_chunks = 2, .pp_group = 3, .pp_short_ends = true}),
      "tp1 cp1 pp1 dp1 shard weights chunks 2 group 3 short ends");
}

}  // namespace
}  // namespace cria::model
