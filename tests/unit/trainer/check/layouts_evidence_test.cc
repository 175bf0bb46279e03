// What the audits find: a row twice, a row less, another order, one bit in one copy of a tensor.

#include "trainer/check/layouts_evidence.h"

#include <gtest/gtest.h>

#include <array>

#include "comm/api/communicator.h"
#include "model/cpu/cpu_ops.h"
#include "tests/support/comm_ranks.h"

namespace cria::trainer {
namespace {

using model::DType;
using model::Layout;
using model::Tensor;
using Evidence = std::vector<std::vector<StepEvidence>>;

// Rows of a micro-batch, each (token, target).
StepEvidence EvidenceOf(std::vector<std::array<int32_t, 2>> rows, int64_t first_sample,
                        int64_t num_samples) {
  std::vector<int32_t> tokens, targets, zeros(rows.size());
  for (const auto& row : rows) {
    tokens.push_back(row[0]);
    targets.push_back(row[1]);
  }
  const auto view = [](std::vector<int32_t>& x) {
    return Tensor(x.data(), DType::kI32, {static_cast<int64_t>(x.size())});
  };
  StepEvidence evidence;
  evidence.first_sample = first_sample;
  evidence.num_samples = num_samples;
  AddRows({.batch = 1,
           .time = static_cast<int64_t>(rows.size()),
           .tokens = view(tokens),
           .targets = view(targets),
           .positions = view(zeros),
           .doc_start = view(zeros)},
          &evidence);
  return evidence;
}

const std::vector<StepEvidence> kOneRank = {EvidenceOf({{1, 2}, {2, 3}, {3, -100}, {4, 5}}, 6, 2)};

TEST(LayoutsEvidenceTest, RowsInAnyOrderAndPlaceAreTheBatch) {
  EXPECT_EQ(kOneRank[0].num_rows, 3);
  const Layout layout = {.dp = 2};
  const Evidence by_rank = {{EvidenceOf({{2, 3}, {1, 2}}, 6, 1)}, {EvidenceOf({{4, 5}}, 7, 1)}};
  EXPECT_EQ(JudgeTokens(layout, by_rank, kOneRank), "");
}

TEST(LayoutsEvidenceTest, ARowTwiceInPlaceOfAnotherIsFound) {
  const Layout layout = {.dp = 2};
  const Evidence by_rank = {{EvidenceOf({{2, 3}, {1, 2}}, 6, 1)}, {EvidenceOf({{1, 2}}, 7, 1)}};
  EXPECT_NE(JudgeTokens(layout, by_rank, kOneRank).find("not the same ones"), std::string::npos);
}

TEST(LayoutsEvidenceTest, ARowLessIsFoundInTheStageThatMissesIt) {
  const Layout layout = {.pp = 2};
  const Evidence by_rank = {kOneRank, {EvidenceOf({{1, 2}, {2, 3}}, 6, 2)}};
  EXPECT_NE(JudgeTokens(layout, by_rank, kOneRank).find("pp 1 read 2 tokens"), std::string::npos);
}

TEST(LayoutsEvidenceTest, SharesMustBeThePiecesOfTheBatch) {
  const Layout layout = {.dp = 2};
  Evidence by_rank = {{EvidenceOf({{2, 3}, {1, 2}}, 6, 1)}, {EvidenceOf({{4, 5}}, 6, 1)}};
  EXPECT_NE(JudgeTokens(layout, by_rank, kOneRank).find("its share is [7, 8)"), std::string::npos);
  by_rank[1].clear();
  EXPECT_NE(JudgeTokens(layout, by_rank, kOneRank).find("0 steps of 1"), std::string::npos);
}

model::LlamaConfig Config() {
  return {
      .layers = 2, .dim = 8, .heads = 2, .kv_heads = 1, .ffn = 8, .vocab = 11, .rope_scaling = {}};
}

model::ParameterBuffers Buffers(const Layout& layout, int rank, model::Ops* ops) {
  return model::ParameterBuffers(model::ParameterLayout(Config(), SliceOf(layout, Config(), rank)),
                                 {}, nullptr, ops);
}

TEST(LayoutsEvidenceTest, OneBitInOneCopyIsNamed) {
  const auto ops = model::cpu::NewCpuOps();
  const Layout layout = {.tp = 2};
  Evidence by_rank(2, std::vector<StepEvidence>(2));
  for (int rank = 0; rank < 2; ++rank) {
    model::ParameterBuffers buffers = Buffers(layout, rank, ops.get());
    buffers.Initialize(7);
    auto& steps = by_rank[static_cast<size_t>(rank)];
    steps[0].parts = HashParameters(buffers);
    if (rank == 1) {
      // Both ranks have the only kv head.
      const model::Parameter* k = buffers.layout().Find("model.layers.1.self_attn.k_proj.weight");
      buffers.weights().f32()[k->offset + 3] += 1e-6f;
    }
    steps[1].parts = HashParameters(buffers);
  }
  const std::string problem = JudgeReplicas(Config(), by_rank);
  EXPECT_NE(problem.find("step 2: ranks 0 and 1 hold different bits of "
                         "model.layers.1.self_attn.k_proj.weight"),
            std::string::npos)
      << problem;
  by_rank[1][1] = by_rank[1][0];
  EXPECT_EQ(JudgeReplicas(Config(), by_rank), "");
}

TEST(LayoutsEvidenceTest, AllPartsOfAModelAreHashed) {
  const auto ops = model::cpu::NewCpuOps();
  model::ParameterBuffers buffers = Buffers({}, 0, ops.get());
  buffers.Initialize(7);
  const std::vector<HeldPart> parts = HashParameters(buffers);
  EXPECT_EQ(parts.size(), buffers.layout().parameters().size());
  int64_t elements = 0;
  for (const HeldPart& part : parts) elements += part.end - part.begin;
  EXPECT_EQ(elements, buffers.layout().num_elements());
}

TEST(LayoutsEvidenceTest, EveryRankGetsAllEvidence) {
  RunRankThreads({.ranks = 3}, [](comm::Communicator& world) {
    // Of different sizes.
    std::vector<StepEvidence> mine(2);
    mine[0].first_sample = world.rank();
    mine[1].rows_hash = 100 + static_cast<uint64_t>(world.rank());
    mine[1].parts.resize(static_cast<size_t>(world.rank()));
    for (HeldPart& part : mine[1].parts) part.bits = 42;
    const auto all = GatherEvidence(mine, &world);
    ASSERT_TRUE(all.ok()) << Message(all.status());
    ASSERT_EQ(all->size(), 3U);
    for (size_t rank = 0; rank < 3; ++rank) {
      ASSERT_EQ((*all)[rank].size(), 2U);
      EXPECT_EQ((*all)[rank][0].first_sample, static_cast<int64_t>(rank));
      EXPECT_EQ((*all)[rank][1].rows_hash, 100 + rank);
      ASSERT_EQ((*all)[rank][1].parts.size(), rank);
      for (const HeldPart& part : (*all)[rank][1].parts) EXPECT_EQ(part.bits, 42U);
    }
  });
}

}  // namespace
}  // namespace cria::trainer
