#include "model/llama/load_weights.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/io/sharded_safetensors.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::model {
namespace {

std::string Path() {
  const char* folder = std::getenv("TEST_TMPDIR");
  return JoinPath(folder != nullptr ? folder : "/tmp", "model.safetensors");
}

struct Stored {
  StDtype dtype = StDtype::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
};
using Stock = std::map<std::string, Stored>;

// Element i of a parameter: tells parameters and elements apart, exact in bf16.
float ValueOf(const Parameter& p, int64_t i) {
  return static_cast<float>((p.offset * 7 + i) % 251) - 125;
}

Stock StockOf(const ParameterLayout& layout, StDtype dtype) {
  Stock stock;
  for (const Parameter& p : layout.parameters()) {
    Stored stored{dtype, p.shape(), ""};
    for (int64_t i = 0; i < p.num_elements(); ++i) {
      const float value = ValueOf(p, i);
      const char* bytes = reinterpret_cast<const char*>(&value);
      stored.bytes.append(dtype == StDtype::kF32 ? bytes : bytes + 2,
                          dtype == StDtype::kF32 ? 4 : 2);
    }
    stock[p.name] = stored;
  }
  return stock;
}

Status Load(const Stock& stock, const LlamaConfig& config, std::vector<float>* values) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, stored] : stock) {
    tensors.push_back({name, stored.dtype, stored.shape, stored.bytes});
  }
  CRIA_RETURN_IF_ERROR(WriteSafetensors(Path(), tensors, {}).status());
  CRIA_ASSIGN_OR_RETURN(const auto source, SafetensorsSource::Open(Path()));
  const ParameterLayout layout(config);
  values->assign(static_cast<size_t>(layout.num_elements()), -1.0f);
  return LoadWeights(*source, layout, Tensor(values->data(), DType::kF32, {layout.num_elements()}));
}

LlamaConfig Config(bool tied) {
  LlamaConfig config = TinyConfig();
  config.tied_head = tied;
  return config;
}

class LoadWeightsTest : public testing::TestWithParam<bool> {
 protected:
  const LlamaConfig config_ = Config(GetParam());
  const ParameterLayout layout_{config_};
  std::vector<float> values_;
};

INSTANTIATE_TEST_SUITE_P(Heads, LoadWeightsTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return std::string(info.param ? "Tied" : "Untied");
                         });

TEST_P(LoadWeightsTest, EveryElementFindsItsPlaceInBothTypes) {
  for (const StDtype dtype : {StDtype::kF32, StDtype::kBF16}) {
    const Status status = Load(StockOf(layout_, dtype), config_, &values_);
    ASSERT_TRUE(status.ok()) << status;
    for (const Parameter& p : layout_.parameters()) {
      for (int64_t i = 0; i < p.num_elements(); ++i) {
        ASSERT_EQ(values_[static_cast<size_t>(p.offset + i)], ValueOf(p, i)) << p.name;
      }
    }
  }
}

void ExpectError(const Status& status, StatusCode code, const std::vector<std::string>& said) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& part : said) {
    EXPECT_NE(Message(status).find(part), std::string::npos) << "no " << part << " in: " << status;
  }
}

TEST_P(LoadWeightsTest, MissingTensorIsNotFound) {
  for (const Parameter& p : layout_.parameters()) {
    Stock stock = StockOf(layout_, StDtype::kF32);
    stock.erase(p.name);
    ExpectError(Load(stock, config_, &values_), StatusCode::kNotFound, {Path(), p.name});
  }
}

TEST_P(LoadWeightsTest, WrongShapeNamesBoth) {
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  Stock stock = StockOf(layout_, StDtype::kF32);
  stock[name].shape = {24, 12};  // transposed: as many numbers
  ExpectError(Load(stock, config_, &values_), StatusCode::kInvalidArgument,
              {Path(), name, "[24, 12]", "[12, 24]"});
  stock = StockOf(layout_, StDtype::kF32);
  stock["model.norm.weight"].shape = {24, 1};
  ExpectError(Load(stock, config_, &values_), StatusCode::kInvalidArgument,
              {"model.norm.weight", "[24, 1]", "[24]"});
}

TEST_P(LoadWeightsTest, TypesThatAreNoFloatsAreRefused) {
  Stock stock = StockOf(layout_, StDtype::kBF16);
  stock["model.norm.weight"].dtype = StDtype::kI16;
  ExpectError(Load(stock, config_, &values_), StatusCode::kInvalidArgument,
              {Path(), "model.norm.weight", "I16"});
}

TEST_P(LoadWeightsTest, AWrongFileChangesNothing) {
  Stock stock = StockOf(layout_, StDtype::kF32);
  stock.erase("model.norm.weight");
  EXPECT_FALSE(Load(stock, config_, &values_).ok());
  EXPECT_EQ(values_, std::vector<float>(values_.size(), -1.0f));
}

TEST_P(LoadWeightsTest, UnknownTensorIsRefusedButRotaryTables) {
  Stock stock = StockOf(layout_, StDtype::kF32);
  const Stored extra{StDtype::kF32, {2}, std::string(8, '\0')};
  stock["model.layers.0.self_attn.rotary_emb.inv_freq"] = extra;
  EXPECT_TRUE(Load(stock, config_, &values_).ok());
  stock["model.layers.2.mlp.up_proj.weight"] = extra;  // a third layer
  ExpectError(Load(stock, config_, &values_), StatusCode::kInvalidArgument,
              {Path(), "model.layers.2.mlp.up_proj.weight"});
  Stock biased = StockOf(layout_, StDtype::kF32);
  biased["model.layers.0.self_attn.q_proj.bias"] = extra;
  ExpectError(Load(biased, config_, &values_), StatusCode::kInvalidArgument, {"q_proj.bias"});
}

// A report: a "tied" head that was stored apart drifted from the embedding.
TEST(LoadTiedWeightsTest, AStoredHeadMustBeTheEmbedding) {
  const LlamaConfig config = Config(true);
  const ParameterLayout layout(config);
  std::vector<float> values;
  Stock stock = StockOf(layout, StDtype::kF32);
  stock["lm_head.weight"] = stock["model.embed_tokens.weight"];
  EXPECT_TRUE(Load(stock, config, &values).ok());
  stock["lm_head.weight"].bytes[100] ^= 1;
  ExpectError(Load(stock, config, &values), StatusCode::kInvalidArgument,
              {Path(), "lm_head.weight", "row 1"});
  stock["lm_head.weight"].bytes.resize(4 * 24);
  stock["lm_head.weight"].shape = {4, 6};
  ExpectError(Load(stock, config, &values), StatusCode::kInvalidArgument,
              {Path(), "lm_head.weight", "[4, 6]"});
}

}  // namespace
}  // namespace cria::model
