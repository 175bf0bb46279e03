// Which layouts there are, counted by hand; text there and back.

#include "trainer/check/layout_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace cria::trainer {
namespace {

using model::Layout;
using model::Shard;

// As configs/models/layouts.yaml.
model::LlamaConfig Config() {
  return {.layers = 8,
          .dim = 48,
          .heads = 24,
          .kv_heads = 2,
          .head_dim = 8,
          .ffn = 96,
          .vocab = 387,
          .max_positions = 48,
          .rope_scaling = {}};
}

TEST(LayoutListTest, TwoRanks) {
  std::vector<std::string> names;
  for (const Layout& layout : AllLayouts(Config(), 48, {2})) names.push_back(FormatLayout(layout));
  EXPECT_EQ(names,
            (std::vector<std::string>{"dp2", "dp2,optimizer", "dp2,gradients", "dp2,weights", "pp2",
                                      "pp2,short", "pp2,chunks2", "pp2,chunks2,short", "cp2",
                                      "cp2,optimizer", "cp2,gradients", "cp2,weights", "tp2"}));
}

TEST(LayoutListTest, EachIsAllowedAndThereOnce) {
  const std::vector<Layout> layouts = AllLayouts(Config(), 48, {1, 2, 3, 4, 6, 8});
  std::set<std::string> names;
  for (const Layout& layout : layouts) {
    EXPECT_TRUE(CheckLayout(layout, Config(), 48, "").ok()) << FormatLayout(layout);
    EXPECT_TRUE(names.insert(FormatLayout(layout)).second) << FormatLayout(layout);
  }
  EXPECT_EQ(FormatLayout(layouts.front()), "one");
  // Of what the model divides into, nothing is left out.
  for (const char* name :
       {"tp8", "cp8", "pp8", "dp8,weights", "tp2,cp2,pp2", "tp2,cp2,dp2,gradients", "pp8,short",
        "pp4,dp2,optimizer,chunks2", "cp3,pp2", "tp6", "tp2,dp3,weights", "pp6,short"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
  // Three ranks can't share two kv heads; eight layers are no 16 stages.
  EXPECT_EQ(names.count("tp3"), 0U);
  EXPECT_EQ(names.count("pp8,chunks2"), 0U);
}

TEST(LayoutListTest, CountsByHand) {
  // dp: 4 kinds of sharding; cp: 4; pp: 4 kinds of pipeline.
  EXPECT_EQ(AllLayouts(Config(), 48, {1}).size(), 1U);
  EXPECT_EQ(AllLayouts(Config(), 48, {3}).size(), 4U + 4 + 4);
  // cp x dp in 4 ranks: (1,4) (2,2) (4,1), 12 with sharding; pp2 with cp2 or dp2: 2 x 16; pp4: 4;
  // tp2 with cp2, dp2: 8, with pp2: 4; tp4: 1.
  EXPECT_EQ(AllLayouts(Config(), 48, {4}).size(), 12U + 32 + 4 + 8 + 4 + 1);
}

TEST(LayoutListTest, ShortSequencesAllowFewer) {
  for (const Layout& layout : AllLayouts(Config(), 4, {4})) {
    EXPECT_LE(layout.cp, 2);
    EXPECT_TRUE(layout.cp == 1 || layout.tp == 1) << FormatLayout(layout);
  }
}

TEST(LayoutListTest, TextThereAndBack) {
  for (const Layout& layout : AllLayouts(Config(), 48, {1, 2, 4, 6})) {
    const auto back = ParseLayouts(FormatLayout(layout));
    ASSERT_TRUE(back.ok()) << Message(back.status());
    EXPECT_EQ(*back, std::vector<Layout>{layout});
  }
}

TEST(LayoutListTest, ReadsListsAndNamesWrongWords) {
  const auto layouts = ParseLayouts(" tp2, cp2 ;pp4 chunks2 group8 short;;one; dp2,weights");
  ASSERT_TRUE(layouts.ok()) << Message(layouts.status());
  EXPECT_EQ(*layouts,
            (std::vector<Layout>{{.tp = 2, .cp = 2},
                                 {.pp = 4, .pp_chunks = 2, .pp_group = 8, .pp_short_ends = true},
                                 {},
                                 {.dp = 2, .shard = Shard::kWeights}}));
  for (const char* wrong : {"", " ; ", "tp", "tp0", "tp2x", "xp2", "dp-1", "zero1"}) {
    EXPECT_EQ(ParseLayouts(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
  }
  EXPECT_NE(Message(ParseLayouts("tp2;tq2").status()).find("\"tq2\""), std::string::npos);
}

}  // namespace
}  // namespace cria::trainer
