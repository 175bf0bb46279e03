#include "model/io/meta_params.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cria::model {
namespace {

struct Known {
  const char* name;
  const char* json;
  int64_t ffn;
  int64_t kv_heads;
  double factor;  // 1: RoPE is not scaled
};

// The params.json of Meta's releases.
const Known kReleases[] = {
    {"Llama2_7B",
     R"({"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-05,
         "vocab_size": -1})",
     11008, 32, 1},
    {"Llama2_70B",
     R"({"dim": 8192, "multiple_of": 4096, "ffn_dim_multiplier": 1.3, "n_heads": 64,
         "n_kv_heads": 8, "n_layers": 80, "norm_eps": 1e-05, "vocab_size": -1})",
     28672, 8, 1},
    {"Llama3_8B",
     R"({"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256,
         "multiple_of": 1024, "ffn_dim_multiplier": 1.3, "norm_eps": 1e-05,
         "rope_theta": 500000.0})",
     14336, 8, 1},
    {"Llama31_8B",
     R"({"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256,
         "ffn_dim_multiplier": 1.3, "multiple_of": 1024, "norm_eps": 1e-05,
         "rope_theta": 500000.0, "use_scaled_rope": true})",
     14336, 8, 8},
    {"Llama31_405B",
     R"({"dim": 16384, "n_layers": 126, "n_heads": 128, "n_kv_heads": 8, "vocab_size": 128256,
         "ffn_dim_multiplier": 1.2, "multiple_of": 4096, "norm_eps": 1e-05,
         "rope_theta": 500000.0, "use_scaled_rope": true})",
     53248, 8, 8},
    {"Llama32_1B",
     R"({"dim": 2048, "n_layers": 16, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256,
         "ffn_dim_multiplier": 1.5, "multiple_of": 256, "norm_eps": 1e-05,
         "rope_theta": 500000.0, "use_scaled_rope": true})",
     8192, 8, 32},
    {"Llama32_3B",
     R"({"dim": 3072, "n_layers": 28, "n_heads": 24, "n_kv_heads": 8, "vocab_size": 128256,
         "ffn_dim_multiplier": 1.0, "multiple_of": 256, "norm_eps": 1e-05,
         "rope_theta": 500000.0, "use_scaled_rope": true})",
     8192, 8, 32},
};

class MetaReleaseTest : public testing::TestWithParam<Known> {};
INSTANTIATE_TEST_SUITE_P(Releases, MetaReleaseTest, testing::ValuesIn(kReleases),
                         [](const testing::TestParamInfo<Known>& info) {
                           return std::string(info.param.name);
                         });

// Reports: the factor 8 was used for 3.2 1B too; the number of K heads was taken for Q's.
TEST_P(MetaReleaseTest, GivesTheReleasesSizes) {
  const auto params = ParseMetaParams(GetParam().json, "params.json", {});
  ASSERT_TRUE(params.ok()) << params.status();
  const LlamaConfig& config = params->config;
  EXPECT_EQ(config.ffn, GetParam().ffn);
  EXPECT_EQ(config.kv_heads, GetParam().kv_heads);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.rope_scaling.type, GetParam().factor == 1 ? "default" : "llama3");
  EXPECT_EQ(config.rope_scaling.factor, GetParam().factor);
  const bool llama2 = config.rope_theta == 10000;
  EXPECT_EQ(params->vocab_is_known, !llama2);
  EXPECT_EQ(config.max_positions, llama2 ? 4096 : GetParam().factor == 1 ? 8192 : 131072);
}

TEST(MetaParamsTest, TheFactorCanBeSaid) {
  const auto params = ParseMetaParams(kReleases[3].json, "params.json", {.rope_factor = 4});
  ASSERT_TRUE(params.ok()) << params.status();
  EXPECT_EQ(params->config.rope_scaling.factor, 4);
  const Status unscaled =
      ParseMetaParams(kReleases[2].json, "params.json", {.rope_factor = 4}).status();
  EXPECT_EQ(unscaled.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(unscaled).find("use_scaled_rope"), std::string::npos);
}

TEST(MetaParamsTest, MistakesNameKeyAndValue) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> bad = {
      {"[]", {"object"}},
      {R"({"dim": 64, "n_layers": 2})", {"n_heads"}},
      {R"({"dim": 0, "n_layers": 2, "n_heads": 2})", {"dim", "0"}},
      {R"({"dim": 9999999999, "n_layers": 2, "n_heads": 2})", {"dim", "9999999999"}},
      {R"({"dim": 64, "n_layers": 2, "n_heads": 2, "multiple_of": 0})", {"multiple_of", "0"}},
      {R"({"dim": 64, "n_layers": 2, "n_heads": 2, "ffn_dim_multiplier": -1})",
       {"ffn_dim_multiplier", "-1"}},
      {R"({"dim": 64, "n_layers": 2, "n_heads": 2, "moe_args": {"num_experts": 8}})",
       {"moe_args", "num_experts"}},
      {R"({"dim": 64, "n_layers": 2, "n_heads": 2, "quantization_args": {"scheme": "int4"}})",
       {"quantization_args", "int4"}},
      {R"({"dim": 64,)", {"params.json"}},
  };
  for (const auto& [json, said] : bad) {
    const Status status = ParseMetaParams(json, "params.json", {}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << json << status;
    for (const std::string& part : said) {
      EXPECT_NE(Message(status).find(part), std::string::npos) << part << " in " << status;
    }
  }
}

}  // namespace
}  // namespace cria::model
