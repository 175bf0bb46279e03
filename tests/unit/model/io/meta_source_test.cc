#include "model/io/meta_source.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>

#include "base/file.h"
#include "tests/support/process.h"
#include "tests/unit/model/io/torch_builder.h"

namespace cria::model {
namespace {

// Two layers, 4 heads of 6 over 2 kv heads.
constexpr int64_t kDim = 24, kHeads = 4, kKvHeads = 2, kHeadDim = 6, kFfn = 32, kVocab = 20;

struct Matrix {
  int64_t rows = 0, columns = 0;  // columns 0: a vector
  std::vector<float> values;
  float At(int64_t r, int64_t c) const {
    return values[static_cast<size_t>(r * std::max<int64_t>(columns, 1) + c)];
  }
};
using Model = std::map<std::string, Matrix>;

LlamaConfig Config() {
  LlamaConfig config;
  config.dim = kDim;
  config.heads = kHeads;
  config.kv_heads = kKvHeads;
  return config;
}

Matrix Numbers(int64_t rows, int64_t columns, int seed) {
  Matrix m{rows, columns, {}};
  for (int64_t i = 0; i < rows * std::max<int64_t>(columns, 1); ++i) {
    m.values.push_back(static_cast<float>(i) + 1000.0f * static_cast<float>(seed));
  }
  return m;
}

// Under Meta's names, each number told apart.
Model MetaModel() {
  Model model;
  int seed = 0;
  model["tok_embeddings.weight"] = Numbers(kVocab, kDim, ++seed);
  model["output.weight"] = Numbers(kVocab, kDim, ++seed);
  model["norm.weight"] = Numbers(kDim, 0, ++seed);
  for (const char* layer : {"layers.0.", "layers.1."}) {
    const auto add = [&](const char* name, int64_t rows, int64_t columns) {
      model[StrCat(layer, name, ".weight")] = Numbers(rows, columns, ++seed);
    };
    add("attention.wq", kHeads * kHeadDim, kDim);
    add("attention.wk", kKvHeads * kHeadDim, kDim);
    add("attention.wv", kKvHeads * kHeadDim, kDim);
    add("attention.wo", kDim, kHeads * kHeadDim);
    add("feed_forward.w1", kFfn, kDim);
    add("feed_forward.w3", kFfn, kDim);
    add("feed_forward.w2", kDim, kFfn);
    add("attention_norm", kDim, 0);
    add("ffn_norm", kDim, 0);
  }
  return model;
}

bool CutByColumns(const std::string& name, bool old_embedding) {
  return name.find(".wo.") != std::string::npos || name.find(".w2.") != std::string::npos ||
         (old_embedding && name == "tok_embeddings.weight");
}

// One shard of several, as tensor parallelism cuts.
std::string Shard(const Model& model, int64_t index, int64_t count, bool old_embedding) {
  TorchBuilder builder;
  for (const auto& [name, m] : model) {
    const bool vector = m.columns == 0;
    const bool by_columns = CutByColumns(name, old_embedding);
    const int64_t rows = vector || by_columns ? m.rows : m.rows / count;
    const int64_t columns = vector ? 1 : by_columns ? m.columns / count : m.columns;
    std::vector<float> part;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        part.push_back(m.At(r + (vector || by_columns ? 0 : index * rows),
                            c + (by_columns ? index * columns : 0)));
      }
    }
    const std::string bytes(reinterpret_cast<const char*>(part.data()), part.size() * 4);
    builder.Add(name, StDtype::kF32,
                vector ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, columns},
                vector ? std::vector<int64_t>{1} : std::vector<int64_t>{columns, 1}, bytes);
  }
  builder.Add("rope.freqs", StDtype::kF32, {3}, {1}, std::string(12, '\0'));
  return builder.Build();
}

class MetaSourceTest : public testing::Test {
 protected:
  void Write(const Model& model, int64_t count, bool old_embedding = false) {
    for (int64_t i = 0; i < count; ++i) {
      const std::string name = StrFormat("consolidated.%02d.pth", static_cast<int>(i));
      ASSERT_TRUE(
          WriteFileAtomic(JoinPath(dir_, name), Shard(model, i, count, old_embedding)).ok());
    }
  }
  StatusOr<std::unique_ptr<MetaSource>> Open() const { return MetaSource::Open(dir_, Config()); }
  std::vector<float> Read(const WeightSource& source, const std::string& name) const {
    const WeightInfo* info = source.Find(name);
    EXPECT_NE(info, nullptr) << name;
    if (info == nullptr) return {};
    std::vector<float> values(static_cast<size_t>(info->rows() * info->columns()));
    EXPECT_TRUE(source.ReadRows(*info, 0, info->rows(), StDtype::kF32, values.data()).ok());
    return values;
  }

  const std::string dir_ = FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name());
};

// Row r of a head in Hugging Face's order comes from this row in Meta's: the even ones first.
int64_t MetaRow(int64_t row) {
  const int64_t head = row / kHeadDim, r = row % kHeadDim;
  return head * kHeadDim + (r < kHeadDim / 2 ? 2 * r : 2 * (r - kHeadDim / 2) + 1);
}

TEST_F(MetaSourceTest, JoinsShardsHoweverTheyWereCut) {
  const Model model = MetaModel();
  const std::map<std::string, std::string> names = {
      {"tok_embeddings.weight", "model.embed_tokens.weight"},
      {"output.weight", "lm_head.weight"},
      {"norm.weight", "model.norm.weight"},
      {"layers.1.attention.wq.weight", "model.layers.1.self_attn.q_proj.weight"},
      {"layers.1.attention.wk.weight", "model.layers.1.self_attn.k_proj.weight"},
      {"layers.1.attention.wv.weight", "model.layers.1.self_attn.v_proj.weight"},
      {"layers.1.attention.wo.weight", "model.layers.1.self_attn.o_proj.weight"},
      {"layers.0.feed_forward.w1.weight", "model.layers.0.mlp.gate_proj.weight"},
      {"layers.0.feed_forward.w3.weight", "model.layers.0.mlp.up_proj.weight"},
      {"layers.0.feed_forward.w2.weight", "model.layers.0.mlp.down_proj.weight"},
      {"layers.0.attention_norm.weight", "model.layers.0.input_layernorm.weight"},
      {"layers.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight"},
  };
  for (const int64_t count : {1, 2}) {
    for (const bool old_embedding : {false, true}) {
      Write(model, count, old_embedding);
      const auto source = Open();
      ASSERT_TRUE(source.ok()) << source.status();
      EXPECT_EQ((*source)->weights().size(), 3u + 2 * 9);
      EXPECT_FALSE((*source)->head_is_tied());
      for (const auto& [meta, hf] : names) {
        const std::vector<float> got = Read(**source, hf);
        const Matrix& m = model.at(meta);
        const bool rotary =
            hf.find("q_proj") != std::string::npos || hf.find("k_proj") != std::string::npos;
        ASSERT_EQ(got.size(), m.values.size()) << hf;
        const int64_t columns = std::max<int64_t>(m.columns, 1);
        for (int64_t r = 0; r < m.rows; ++r) {
          for (int64_t c = 0; c < columns; ++c) {
            ASSERT_EQ(got[static_cast<size_t>(r * columns + c)], m.At(rotary ? MetaRow(r) : r, c))
                << hf << " row " << r;
          }
        }
      }
    }
  }
}

TEST_F(MetaSourceTest, AHeadThatIsTheEmbeddingIsTied) {
  Model model = MetaModel();
  model["output.weight"] = model["tok_embeddings.weight"];
  Write(model, 2);
  auto source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE((*source)->head_is_tied());
  EXPECT_EQ((*source)->Find("lm_head.weight"), nullptr);
  model.erase("output.weight");
  Write(model, 2);
  source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_TRUE((*source)->head_is_tied());
}

TEST_F(MetaSourceTest, ReadsOneSafetensorsFile) {
  const Model model = MetaModel();
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, m] : model) {
    tensors.push_back(
        {name,
         StDtype::kF32,
         m.columns == 0 ? std::vector<int64_t>{m.rows} : std::vector<int64_t>{m.rows, m.columns},
         {reinterpret_cast<const char*>(m.values.data()), m.values.size() * 4}});
  }
  ASSERT_TRUE(WriteSafetensors(JoinPath(dir_, "consolidated.safetensors"), tensors, {}).ok());
  const auto source = Open();
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ(Read(**source, "model.embed_tokens.weight"), model.at("tok_embeddings.weight").values);
}

TEST_F(MetaSourceTest, WhatDoesNotFitIsNamed) {
  const auto expect = [&](const std::vector<std::string>& said) {
    const Status status = Open().status();
    ASSERT_FALSE(status.ok());
    for (const std::string& part : said) {
      EXPECT_NE(Message(status).find(part), std::string::npos) << part << " in " << status;
    }
  };
  expect({dir_, "consolidated.00.pth"});
  Write(MetaModel(), 4);
  ASSERT_TRUE(RemoveAll(JoinPath(dir_, "consolidated.02.pth")).ok());
  expect({"consolidated.02.pth is missing"});

  Write(MetaModel(), 2);
  ASSERT_TRUE(RemoveAll(JoinPath(dir_, "consolidated.03.pth")).ok());
  Model other = MetaModel();
  other["layers.0.ffn_norm.weight"].values[3] += 1;
  ASSERT_TRUE(
      WriteFileAtomic(JoinPath(dir_, "consolidated.01.pth"), Shard(other, 1, 2, false)).ok());
  expect({"layers.0.ffn_norm.weight", "the shards differ"});

  other = MetaModel();
  other.erase("layers.1.attention.wq.weight");
  ASSERT_TRUE(
      WriteFileAtomic(JoinPath(dir_, "consolidated.01.pth"), Shard(other, 1, 2, false)).ok());
  expect({"layers.1.attention.wq.weight", "2 shards"});

  other = MetaModel();
  other["layers.0.attention.wq_norm.weight"] = Numbers(kDim, 0, 9);
  Write(other, 1);
  ASSERT_TRUE(RemoveAll(JoinPath(dir_, "consolidated.01.pth")).ok());
  expect({"unknown weight", "wq_norm"});
}

}  // namespace
}  // namespace cria::model
