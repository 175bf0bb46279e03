#include "model/llama/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace cria::model {
namespace {

std::string Path() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return JoinPath(folder != nullptr ? folder : "/tmp", "config.json");
}

StatusOr<LlamaConfig> Read(const std::string& text) {
  CRIA_RETURN_IF_ERROR(WriteFileAtomic(Path(), text));
  return LlamaConfigFromHuggingFace(Path());
}

// Llama 3.2 1B as transformers 4 writes it.
const char kVersion4[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})";

// The text with one part replaced; the test fails when the part isn't there.
std::string With(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(LlamaConfigTest, ReadsWhatTransformers4Writes) {
  const auto config = Read(kVersion4);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->layers, 16);
  EXPECT_EQ(config->dim, 2048);
  EXPECT_EQ(config->heads, 32);
  EXPECT_EQ(config->kv_heads, 8);
  EXPECT_EQ(config->HeadDim(), 64);
  EXPECT_EQ(config->ffn, 8192);
  EXPECT_EQ(config->vocab, 128256);
  EXPECT_EQ(config->max_positions, 131072);
  EXPECT_EQ(config->norm_eps, 1e-5);
  EXPECT_EQ(config->rope_theta, 500000);
  EXPECT_TRUE(config->tied_head);
  EXPECT_EQ(config->rope_scaling.type, "llama3");
  EXPECT_EQ(config->rope_scaling.factor, 32);
  EXPECT_EQ(config->rope_scaling.low_freq_factor, 1);
  EXPECT_EQ(config->rope_scaling.high_freq_factor, 4);
  EXPECT_EQ(config->rope_scaling.original_max_positions, 8192);
}

TEST(LlamaConfigTest, ReadsWhatTransformers5Writes) {
  std::string text = With(kVersion4, R"("rope_theta": 500000.0, )", "");
  text = With(text, R"("rope_scaling": {)", R"("rope_parameters": {"rope_theta": 500000.0, )");
  text = With(text, R"("torch_dtype")", R"("dtype")");
  const auto config = Read(text);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope_theta, 500000);
  EXPECT_EQ(config->rope_scaling.type, "llama3");
  EXPECT_EQ(config->rope_scaling.factor, 32);

  // A plain model has rope_parameters as well.
  const auto plain = Read(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
      "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 100,
      "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}})");
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->rope_theta, 10000);
  EXPECT_EQ(plain->rope_scaling.type, "default");
}

// A report: only one of the two names of the key was read, so that scaling was silently off.
TEST(LlamaConfigTest, ReadsBothNamesOfTheRopeType) {
  for (const char* key : {"rope_type", "type"}) {
    const auto config = Read(With(kVersion4, R"("rope_type")", std::string("\"") + key + "\""));
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->rope_scaling.type, "llama3") << key;
  }
  const auto both = Read(
      With(kVersion4, R"("rope_type": "llama3")", R"("rope_type": "llama3", "type": "default")"));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->rope_scaling.type, "llama3");  // transformers prefers rope_type
  const auto linear = Read(With(kVersion4, R"("rope_type": "llama3")", R"("type": "linear")"));
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_EQ(linear->rope_scaling.type, "linear");
}

// transformers 5 takes rope_scaling where a file has both, and so do we.
TEST(LlamaConfigTest, RopeScalingWinsOverRopeParameters) {
  const std::string both =
      With(kVersion4, R"("rope_theta": 500000.0)",
           R"("rope_theta": 500000.0, "rope_parameters": {"rope_type": "linear", "factor": 2.0})");
  auto config = Read(both);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope_scaling.type, "llama3");
  EXPECT_EQ(config->rope_theta, 500000);
  const size_t begin = both.find(R"("rope_scaling": {)");
  std::string emptied = both;
  emptied.replace(begin, both.find('}', begin) + 1 - begin, R"("rope_scaling": {})");
  config = Read(emptied);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rope_scaling.type, "linear");
  EXPECT_EQ(config->rope_scaling.factor, 2);
}

// Llama 2 in the style of transformers 4: no head_dim, theta by its default, a null scaling.
TEST(LlamaConfigTest, ReadsLlama2) {
  const auto config = Read(R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
      "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "tie_word_embeddings": false, "torch_dtype": "float16",
      "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->HeadDim(), 128);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_EQ(config->rope_scaling.type, "default");
  EXPECT_EQ(config->ffn, 11008);
}

TEST(LlamaConfigTest, HasTransformersDefaultsForWhatIsMissing) {
  const auto config = Read(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
      "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 100, "head_dim": null,
      "rope_scaling": null, "num_key_value_heads": null})");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->HeadDim(), 16);
  EXPECT_EQ(config->norm_eps, 1e-6);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_EQ(config->max_positions, 2048);
  EXPECT_FALSE(config->tied_head);
  EXPECT_EQ(config->rope_scaling.type, "default");
}

struct BadConfig {
  const char* name;
  const char* from;
  const char* to;
  std::vector<std::string> said;  // the key and the values
};

class LlamaConfigErrorTest : public testing::TestWithParam<BadConfig> {};

const BadConfig kBadConfigs[] = {
    {"OtherArchitecture",
     R"("model_type": "llama")",
     R"("model_type": "mistral")",
     {"model_type", "mistral"}},
    {"NoArchitecture", R"("model_type": "llama",)", "", {"model_type"}},
    {"AttentionBias",
     R"("attention_bias": false)",
     R"("attention_bias": true)",
     {"attention_bias", "true"}},
    {"MlpBias", R"("mlp_bias": false)", R"("mlp_bias": true)", {"mlp_bias", "true"}},
    {"OtherActivation", R"("silu")", R"("gelu")", {"hidden_act", "gelu"}},
    {"MisspeltSize", R"("hidden_size")", R"("hiden_size")", {"hidden_size"}},
    {"NegativeSize", R"("hidden_size": 2048)", R"("hidden_size": -2048)", {"dim", "-2048"}},
    {"ZeroLayers", R"("num_hidden_layers": 16)", R"("num_hidden_layers": 0)", {"layers", "0"}},
    {"HugeVocabulary", R"(128256)", R"(99999999999)", {"vocab", "99999999999"}},
    {"SizeAsText", R"("hidden_size": 2048)", R"("hidden_size": "2048")", {"hidden_size", "2048"}},
    {"SizeWithFraction",
     R"("hidden_size": 2048)",
     R"("hidden_size": 2048.5)",
     {"hidden_size", "2048.5"}},
    {"HeadsDoNotDivide",
     R"("head_dim": 64, )",
     R"("head_dim": null, "x": )"
     R"({"y": 1}, )",
     {}},
    {"KvHeadsDoNotDivide",
     R"("num_key_value_heads": 8)",
     R"("num_key_value_heads": 7)",
     {"kv_heads", "32", "7"}},
    {"OddHeadDim", R"("head_dim": 64)", R"("head_dim": 63)", {"head_dim", "63"}},
    {"NegativeHeadDim", R"("head_dim": 64)", R"("head_dim": -64)", {"head_dim", "-64"}},
    {"UnknownRope", R"("llama3")", R"("yarn")", {"rope_type", "yarn"}},
    {"RopeWithoutFactor", R"("factor": 32.0, )", "", {"rope_scaling", "factor"}},
    {"RopeWithoutLength",
     R"("original_max_position_embeddings": 8192, )",
     "",
     {"rope_scaling", "original_max_position_embeddings"}},
    {"RopeFactorBelowOne", R"("factor": 32.0, )", R"("factor": 0.5, )", {"factor", "0.5"}},
    {"RopeBandsCrossed",
     R"("high_freq_factor": 4.0)",
     R"("high_freq_factor": 0.5)",
     {"high_freq_factor", "0.5"}},
    {"RopeNotAnObject",
     R"("rope_theta": 500000.0)",
     R"("rope_parameters": 3)",
     {"rope_parameters"}},
    {"PartRotated",
     R"("rope_theta": 500000.0)",
     R"("rope_theta": 500000.0, "partial_rotary_factor": 0.5)",
     {"partial_rotary_factor", "0.5"}},
    {"OtherHead",
     R"("LlamaForCausalLM")",
     R"("LlamaForSequenceClassification")",
     {"architectures", "LlamaForSequenceClassification"}},
    {"Quantised",
     R"("use_cache": true)",
     R"("quantization_config": {"quant_method": "fbgemm_fp8"})",
     {"quantization_config", "fbgemm_fp8"}},
    {"DynamicRope", R"("rope_type": "llama3")", R"("rope_type": "dynamic")", {"dynamic"}},
    {"NegativeTheta", R"("rope_theta": 500000.0)", R"("rope_theta": -1.0)", {"rope_theta", "-1"}},
    {"NegativeEps", R"("rms_norm_eps": 1e-05)", R"("rms_norm_eps": -1e-05)", {"norm_eps"}},
    {"NotJson", R"("vocab_size": 128256})", R"("vocab_size": )", {}},
};

INSTANTIATE_TEST_SUITE_P(Errors, LlamaConfigErrorTest, testing::ValuesIn(kBadConfigs),
                         [](const testing::TestParamInfo<BadConfig>& info) {
                           return std::string(info.param.name);
                         });

TEST_P(LlamaConfigErrorTest, NamesFileKeyAndValue) {
  std::string text = With(kVersion4, GetParam().from, GetParam().to);
  std::vector<std::string> said = GetParam().said;
  if (std::string(GetParam().name) == "HeadsDoNotDivide") {
    text = With(text, R"("num_attention_heads": 32)", R"("num_attention_heads": 24)");
    said = {"heads", "2048", "24"};
  }
  const auto config = Read(text);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << config.status();
  said.push_back(Path());
  for (const std::string& part : said) {
    EXPECT_NE(Message(config.status()).find(part), std::string::npos)
        << "no " << part << " in: " << config.status();
  }
  EXPECT_EQ(Message(config.status()).find('\n'), std::string::npos) << config.status();
}

TEST(LlamaConfigTest, MissingFileIsNotFound) {
  const auto config = LlamaConfigFromHuggingFace("/nowhere/config.json");
  EXPECT_EQ(config.status().code(), StatusCode::kNotFound);
  EXPECT_NE(Message(config.status()).find("/nowhere/config.json"), std::string::npos);
}

TEST(LlamaConfigTest, ValidateTakesHeadDimApartFromDim) {
  LlamaConfig config;
  config.dim = 100;
  config.heads = 3;
  config.kv_heads = 1;
  EXPECT_FALSE(Validate(config, "here").ok());
  config.head_dim = 10;
  EXPECT_TRUE(Validate(config, "here").ok()) << Validate(config, "here");
  EXPECT_EQ(config.QDim(), 30);
  EXPECT_EQ(config.KvDim(), 10);
}

}  // namespace
}  // namespace cria::model
