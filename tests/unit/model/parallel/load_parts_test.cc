// Ranks that load a whole model have the parts that they would have initialised.

#include "model/parallel/load_parts.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/str.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/parameter_source.h"
#include "model/parallel/groups.h"
#include "tests/support/comm_ranks.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::model {
namespace {

std::vector<float> ValuesOf(const ParameterBuffers& buffers) {
  const Tensor& x = buffers.weights();
  return std::vector<float>(x.f32(), x.f32() + x.num_elements());
}

TEST(LoadPartsTest, EachRankGetsItsRowsColumnsAndStretches) {
  for (const bool tied : {true, false}) {
    LlamaConfig config = TinyConfig();
    config.tied_head = tied;
    const ParameterLayout whole(config);
    std::vector<float> values(static_cast<size_t>(whole.num_elements()));
    const Tensor all(values.data(), DType::kF32, {whole.num_elements()});
    InitializeParameters(whole, /*seed=*/7, all);
    const ParameterSource source(whole, all, "whole");
    for (const Layout& layout :
         {Layout{.tp = 2}, Layout{.tp = 4, .pp = 2}, Layout{.dp = 3, .shard = Shard::kWeights},
          Layout{.tp = 2, .dp = 2, .shard = Shard::kWeights}}) {
      SCOPED_TRACE(StrCat(Name(layout), tied ? " tied" : ""));
      RunRankThreads({.ranks = layout.world_size()}, [&](comm::Communicator& world) {
        const auto ops = cpu::NewCpuOps();
        StatusOr<Groups> groups = MakeGroups(layout, config, &world);
        ASSERT_TRUE(groups.ok()) << groups.status();
        const ParameterLayout mine(config, SliceOf(layout, config, world.rank()));
        ParameterBuffers loaded(mine, {}, &*groups, ops.get());
        loaded.Initialize(/*seed=*/8);
        const Status status = LoadParts(source, config, &loaded);
        ASSERT_TRUE(status.ok()) << status;
        ParameterBuffers made(mine, {}, &*groups, ops.get());
        made.Initialize(/*seed=*/7);
        EXPECT_EQ(ValuesOf(loaded), ValuesOf(made));
      });
    }
  }
}

TEST(LoadPartsTest, AWrongShapeChangesNothing) {
  LlamaConfig other = TinyConfig();
  other.ffn += 8;
  const ParameterLayout whole(other);
  std::vector<float> values(static_cast<size_t>(whole.num_elements()));
  const Tensor all(values.data(), DType::kF32, {whole.num_elements()});
  const ParameterSource source(whole, all, "another model");
  const auto ops = cpu::NewCpuOps();
  ParameterBuffers buffers(ParameterLayout(TinyConfig()), {}, nullptr, ops.get());
  buffers.Initialize(/*seed=*/3);
  const std::vector<float> before = ValuesOf(buffers);
  const Status status = LoadParts(source, TinyConfig(), &buffers);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
  EXPECT_NE(Message(status).find("mlp.gate_proj"), std::string::npos) << status;
  EXPECT_EQ(ValuesOf(buffers), before);
}

}  // namespace
}  // namespace cria::model
