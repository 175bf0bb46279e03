// The golden models through every format and back, against PyTorch's numbers: a wrong row order of
// Q or K, a wrong frequency or a wrong cut of a shard shows at positions above 1,000.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "model/io/meta_source.h"
#include "tests/support/process.h"
#include "tests/unit/model/io/torch_builder.h"
#include "trainer/check/golden_check.h"
#include "trainer/models/gguf_model.h"
#include "trainer/models/hf_writer.h"
#include "trainer/models/meta_model.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

using model::StDtype;

class GoldenFormatsTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return JoinPath(dir_, name); }
  static std::string Golden(const std::string& name) { return JoinPath("tests/golden", name); }

  // PyTorch's numbers beside a folder that we wrote.
  void Check(const std::string& golden, const std::string& folder) {
    const std::vector<std::string> names = ListDir(Golden(golden)).value();
    for (const std::string& name : names) {
      if (name != "config.json" && name != "model.safetensors") {
        std::filesystem::copy(JoinPath(Golden(golden), name), JoinPath(folder, name));
      }
    }
    const auto quantities = CheckGolden(folder, model::Precision::kFp32);
    ASSERT_TRUE(quantities.ok()) << quantities.status();
    EXPECT_GE(quantities->size(), 10u);
    for (const GoldenQuantity& quantity : *quantities) {
      EXPECT_TRUE(quantity.ok()) << golden << ": " << quantity.name << ": " << quantity.error
                                 << " is over " << quantity.limit;
    }
  }

  const std::string dir_ = FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name());
};

// Reports (torchtitan #335 and #1291, nanotron #241): Q and K permuted wrongly or not at all.
TEST_F(GoldenFormatsTest, GgufAndBackGivesPyTorchsLogits) {
  for (const char* name : {"gqa_llama31", "tied_headdim"}) {
    const auto source = OpenModel(Golden(name));
    ASSERT_TRUE(source.ok()) << source.status();
    const std::string gguf = Path(StrCat(name, ".gguf"));
    ASSERT_TRUE(ExportGguf(*source, gguf).ok());
    const auto files = OpenModel(gguf);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->format, ModelFormat::kGguf);
    const auto written = WriteHfModel(*files, Path(name), {});
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_EQ(ReadFile(JoinPath(Path(name), "model.safetensors")).value(),
              ReadFile(JoinPath(Golden(name), "model.safetensors")).value());
    Check(name, Path(name));
  }
}

std::vector<float> Values(const model::WeightSource& source, const std::string& name) {
  const model::WeightInfo* info = source.Find(name);
  EXPECT_NE(info, nullptr) << name;
  std::vector<float> values(static_cast<size_t>(info->rows() * info->columns()));
  EXPECT_TRUE(source.ReadRows(*info, 0, info->rows(), StDtype::kF32, values.data()).ok());
  return values;
}

// Hugging Face's rows as Meta has them: view as [heads, 2, K/2], swap the last two.
std::vector<float> ToMetaRows(const std::vector<float>& hf, int64_t heads, int64_t head_dim,
                              int64_t columns) {
  std::vector<float> meta(hf.size());
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t half = 0; half < 2; ++half) {
      for (int64_t i = 0; i < head_dim / 2; ++i) {
        const int64_t from = head * head_dim + half * (head_dim / 2) + i;
        const int64_t to = head * head_dim + i * 2 + half;
        std::memcpy(&meta[static_cast<size_t>(to * columns)],
                    &hf[static_cast<size_t>(from * columns)],
                    static_cast<size_t>(columns) * sizeof(float));
      }
    }
  }
  return meta;
}

// The golden Llama 3.1 in Meta's layout, cut for two ranks.
void WriteMeta(const ModelFiles& files, const std::string& dir) {
  struct Row {
    std::string meta, hf;
    char cut;       // 'r'ows, 'c'olumns, 's'ame
    int64_t heads;  // of rotary rows, else 0
  };
  const model::LlamaConfig& c = files.config;
  std::vector<Row> rows = {{"tok_embeddings.weight", "model.embed_tokens.weight", 'r', 0},
                           {"norm.weight", "model.norm.weight", 's', 0},
                           {"output.weight", "lm_head.weight", 'r', 0}};
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string meta = StrCat("layers.", i, "."), hf = StrCat("model.layers.", i, ".");
    rows.push_back({meta + "attention.wq.weight", hf + "self_attn.q_proj.weight", 'r', c.heads});
    rows.push_back({meta + "attention.wk.weight", hf + "self_attn.k_proj.weight", 'r', c.kv_heads});
    rows.push_back({meta + "attention.wv.weight", hf + "self_attn.v_proj.weight", 'r', 0});
    rows.push_back({meta + "attention.wo.weight", hf + "self_attn.o_proj.weight", 'c', 0});
    rows.push_back({meta + "feed_forward.w1.weight", hf + "mlp.gate_proj.weight", 'r', 0});
    rows.push_back({meta + "feed_forward.w3.weight", hf + "mlp.up_proj.weight", 'r', 0});
    rows.push_back({meta + "feed_forward.w2.weight", hf + "mlp.down_proj.weight", 'c', 0});
    rows.push_back({meta + "attention_norm.weight", hf + "input_layernorm.weight", 's', 0});
    rows.push_back({meta + "ffn_norm.weight", hf + "post_attention_layernorm.weight", 's', 0});
  }
  for (int64_t rank = 0; rank < 2; ++rank) {
    model::TorchBuilder builder;
    for (const Row& row : rows) {
      const model::WeightInfo* info = files.weights->Find(row.hf);
      std::vector<float> values = Values(*files.weights, row.hf);
      const int64_t columns = info->columns();
      if (row.heads > 0) values = ToMetaRows(values, row.heads, c.HeadDim(), columns);
      const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * 4);
      // Both ranks' views of the whole, as torch.save writes chunks that share a storage.
      if (row.cut == 's') {
        builder.Add(row.meta, StDtype::kF32, info->shape, {1}, bytes);
      } else if (row.cut == 'r') {
        const int64_t part = info->rows() / 2;
        builder.Add(row.meta, StDtype::kF32, {part, columns}, {columns, 1}, bytes,
                    rank * part * columns);
      } else {
        builder.Add(row.meta, StDtype::kF32, {info->rows(), columns / 2}, {columns, 1}, bytes,
                    rank * columns / 2);
      }
    }
    const std::string name = StrFormat("consolidated.%02d.pth", static_cast<int>(rank));
    ASSERT_TRUE(WriteFileAtomic(JoinPath(dir, name), builder.Build()).ok());
  }
}

TEST_F(GoldenFormatsTest, MetasShardsGivePyTorchsLogits) {
  const auto source = OpenModel(Golden("gqa_llama31"));
  ASSERT_TRUE(source.ok()) << source.status();
  const std::string meta = Path("meta");
  ASSERT_TRUE(MakeDirs(meta).ok());
  WriteMeta(*source, meta);
  ASSERT_TRUE(WriteFileAtomic(JoinPath(meta, "params.json"),
                              R"({"dim": 48, "n_layers": 2, "n_heads": 6, "n_kv_heads": 2,
       "vocab_size": -1, "multiple_of": 16, "ffn_dim_multiplier": 0.625, "norm_eps": 1e-05,
       "rope_theta": 500000.0, "use_scaled_rope": true, "max_seq_len": 2048})")
                  .ok());
  auto files = OpenModel(meta);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->format, ModelFormat::kMeta);
  EXPECT_EQ(files->config.vocab, source->config.vocab);
  EXPECT_EQ(files->config.ffn, source->config.ffn);
  EXPECT_EQ(files->config.rope_scaling.factor, 8);
  // The small model was stretched from 256 positions; params.json can't say other than 8,192.
  files->config.rope_scaling.original_max_positions = 256;
  ASSERT_TRUE(WriteHfModel(*files, Path("hf"), {}).ok());
  EXPECT_EQ(ReadFile(Path("hf/model.safetensors")).value(),
            ReadFile(JoinPath(Golden("gqa_llama31"), "model.safetensors")).value());
  Check("gqa_llama31", Path("hf"));
}

TEST_F(GoldenFormatsTest, AHuggingFaceConfigOfOursReadsAsTheSame) {
  for (const char* name : {"gqa_llama31", "tied_headdim", "mha_linear"}) {
    auto files = OpenModel(Golden(name));
    ASSERT_TRUE(files.ok()) << files.status();
    files->format = ModelFormat::kRun;  // so that config.json is made, not copied
    ASSERT_TRUE(WriteHfModel(*files, Path(name), {}).ok());
    Check(name, Path(name));
  }
}

}  // namespace
}  // namespace cria::trainer
