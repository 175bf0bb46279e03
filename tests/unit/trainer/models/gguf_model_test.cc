// Models out to GGUF and in again: names, row order, types, bytes, hostile files.

#include "trainer/models/gguf_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "model/io/gguf.h"
#include "model/io/gguf_llama.h"
#include "model/io/q8_0.h"
#include "model/io/sharded_safetensors.h"
#include "tests/unit/model/io/gguf_bytes.h"
#include "tests/unit/trainer/models/gguf_random_model.h"
#include "trainer/models/hf_model.h"

namespace cria::trainer {
namespace {

using model::GgmlType;
using model::GgufTempPath;
using model::StDtype;

constexpr GgmlType kTypes[] = {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0};

std::vector<float> Values(const model::WeightSource& source, const std::string& name) {
  const model::WeightInfo* info = source.Find(name);
  EXPECT_NE(info, nullptr) << name;
  if (info == nullptr) return {};
  std::vector<float> out(static_cast<size_t>(info->rows() * info->columns()));
  const Status status = source.ReadRows(*info, 0, info->rows(), StDtype::kF32, out.data());
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// Exports and opens again.
ModelFiles Through(const ModelFiles& files, const std::string& path,
                   const GgufExportOptions& options) {
  const Status exported = ExportGguf(files, path, options);
  EXPECT_TRUE(exported.ok()) << exported;
  StatusOr<ModelFiles> opened = OpenGgufModel(path);
  EXPECT_TRUE(opened.ok()) << opened.status();
  return *std::move(opened);
}

TEST(GgufModelTest, KeepsConfigWeightsTokenizerAndIds) {
  const ModelFiles files = SmallModel(StDtype::kF32);
  const std::string path = GgufTempPath("kept.gguf");
  const ModelFiles opened = Through(files, path, {.overwrite = true});
  EXPECT_TRUE(LooksLikeGgufModel(path));
  EXPECT_EQ(opened.format, ModelFormat::kGguf);
  const model::LlamaConfig& a = files.config;
  const model::LlamaConfig& b = opened.config;
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.dim, b.dim);
  EXPECT_EQ(a.heads, b.heads);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(b.head_dim, 0);
  EXPECT_EQ(a.ffn, b.ffn);
  EXPECT_EQ(a.vocab, b.vocab);
  EXPECT_EQ(a.max_positions, b.max_positions);
  EXPECT_EQ(a.norm_eps, b.norm_eps);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(b.rope_scaling.type, "llama3");
  EXPECT_EQ(b.rope_scaling.factor, 8);
  EXPECT_EQ(b.rope_scaling.original_max_positions, 256);
  EXPECT_FALSE(b.tied_head);
  ASSERT_EQ(opened.weights->weights().size(), files.weights->weights().size());
  for (const model::WeightInfo& info : files.weights->weights()) {
    EXPECT_EQ(Values(*opened.weights, info.name), Values(*files.weights, info.name)) << info.name;
  }
  ASSERT_TRUE(opened.tokenizer.has_value());
  EXPECT_EQ(opened.tokenizer->parts(), files.tokenizer->parts());
  EXPECT_EQ(opened.bos_id, files.bos_id);
  EXPECT_EQ(opened.eos_ids, files.eos_ids);
  EXPECT_EQ(opened.chat_template, files.chat_template);
}

// transformers' own converter: rows viewed as [heads, 2, K/2], the two swapped, kv heads for K.
TEST(GgufModelTest, StoresQAndKInMetasRowOrder) {
  const ModelFiles files = SmallModel(StDtype::kF32);
  const std::string path = GgufTempPath("order.gguf");
  ASSERT_TRUE(ExportGguf(files, path, {.overwrite = true}).ok());
  const auto file = model::GgufFile::Open(path);
  ASSERT_TRUE(file.ok());
  const int64_t head_dim = files.config.HeadDim(), dim = files.config.dim;
  for (const auto& [gguf, hf, heads] :
       {std::tuple{"blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight",
                   files.config.heads},
        std::tuple{"blk.1.attn_k.weight", "model.layers.1.self_attn.k_proj.weight",
                   files.config.kv_heads}}) {
    const std::vector<float> want = Values(*files.weights, hf);
    const std::string_view data = file->Data(*file->Find(gguf));
    ASSERT_EQ(data.size(), want.size() * sizeof(float));
    int64_t stored_row = 0;
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < head_dim / 2; ++i) {
        for (int64_t part = 0; part < 2; ++part, ++stored_row) {
          const int64_t row = head * head_dim + part * head_dim / 2 + i;
          EXPECT_EQ(std::memcmp(data.data() + stored_row * dim * 4, want.data() + row * dim,
                                static_cast<size_t>(dim) * 4),
                    0)
              << gguf << ", row " << stored_row;
        }
      }
    }
  }
}

TEST(GgufModelTest, RoundsToEachTypeAsItsConverterDoes) {
  const ModelFiles files = SmallModel(StDtype::kF32);
  for (const GgmlType type : kTypes) {
    const ModelFiles opened =
        Through(files, GgufTempPath("types.gguf"), {.type = type, .overwrite = true});
    for (const std::string name :
         {"model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight",
          "model.layers.1.mlp.down_proj.weight", "model.norm.weight"}) {
      std::vector<float> want = Values(*files.weights, name);
      const auto n = static_cast<int64_t>(want.size());
      const bool is_norm = name == "model.norm.weight";
      if (type == GgmlType::kQ8_0 && !is_norm) {
        std::string blocks(static_cast<size_t>(model::Q8RowBytes(n)), '\0');
        ASSERT_TRUE(model::QuantizeQ8(want.data(), n, blocks.data()).ok());
        model::DequantizeQ8(blocks.data(), n, want.data());
      } else if (type != GgmlType::kF32 && !is_norm) {
        const StDtype half = type == GgmlType::kF16 ? StDtype::kF16 : StDtype::kBF16;
        std::vector<uint16_t> rounded(want.size());
        ASSERT_TRUE(
            model::ConvertElements(StDtype::kF32, want.data(), n, half, rounded.data()).ok());
        ASSERT_TRUE(
            model::ConvertElements(half, rounded.data(), n, StDtype::kF32, want.data()).ok());
      }
      EXPECT_EQ(Values(*opened.weights, name), want) << model::GgmlTypeName(type) << " " << name;
    }
  }
}

// A source's weights under Hugging Face's names in one safetensors file, with their own types: what
// `import` makes of a GGUF file.
void WriteHfWeights(const model::WeightSource& source, const std::string& path) {
  std::vector<std::string> data;
  std::vector<model::TensorToWrite> tensors;
  data.reserve(source.weights().size());
  for (const model::WeightInfo& info : source.weights()) {
    data.emplace_back(
        static_cast<size_t>(info.rows() * info.columns() * model::StDtypeBits(info.dtype) / 8),
        '\0');
    ASSERT_TRUE(source.ReadRows(info, 0, info.rows(), info.dtype, data.back().data()).ok());
    tensors.push_back({info.name, info.dtype, info.shape, data.back()});
  }
  ASSERT_TRUE(model::WriteSafetensors(path, tensors, {}).ok());
}

TEST(GgufModelTest, GivesItsBytesAgainFromItselfAndThroughHuggingFaceWeights) {
  for (const GgmlType type : kTypes) {
    const std::string first = GgufTempPath("first.gguf"), second = GgufTempPath("second.gguf");
    ModelFiles opened =
        Through(SmallModel(StDtype::kBF16), first, {.type = type, .overwrite = true});
    const std::string bytes = *ReadFile(first);
    ASSERT_TRUE(ExportGguf(opened, second, {.overwrite = true}).ok());
    EXPECT_TRUE(*ReadFile(second) == bytes) << model::GgmlTypeName(type) << ", no type named";
    ASSERT_TRUE(ExportGguf(opened, second, {.type = type, .overwrite = true}).ok());
    EXPECT_TRUE(*ReadFile(second) == bytes) << model::GgmlTypeName(type) << ", the same type";

    const std::string weights = GgufTempPath("weights.safetensors");
    WriteHfWeights(*opened.weights, weights);
    auto source = model::SafetensorsSource::Open(weights);
    ASSERT_TRUE(source.ok()) << source.status();
    opened.weights = *std::move(source);
    ASSERT_TRUE(ExportGguf(opened, second, {.type = type, .overwrite = true}).ok());
    EXPECT_TRUE(*ReadFile(second) == bytes) << model::GgmlTypeName(type) << ", through safetensors";
  }
}

TEST(GgufModelTest, KeepsGoldenModelsOfEveryKind) {
  for (const char* name : {"gqa_llama31", "tied_headdim", "mha_linear"}) {
    const auto files = OpenHfModel(StrCat("tests/golden/", name));
    ASSERT_TRUE(files.ok()) << files.status();
    for (const GgmlType type : {GgmlType::kF32, GgmlType::kQ8_0}) {
      const std::string path = GgufTempPath("golden.gguf"), again = GgufTempPath("again.gguf");
      const ModelFiles opened = Through(*files, path, {.type = type, .overwrite = true});
      EXPECT_EQ(opened.config.HeadDim(), files->config.HeadDim());
      EXPECT_EQ(opened.config.tied_head, files->config.tied_head);
      EXPECT_EQ(opened.config.norm_eps, files->config.norm_eps);
      EXPECT_EQ(opened.config.rope_scaling.type, files->config.rope_scaling.type);
      EXPECT_EQ(opened.config.rope_scaling.factor, files->config.rope_scaling.factor);
      EXPECT_EQ(opened.bos_id, files->bos_id);
      EXPECT_EQ(opened.eos_ids, files->eos_ids);
      EXPECT_EQ(opened.tokenizer_status.code(), StatusCode::kNotFound);
      ASSERT_TRUE(ExportGguf(opened, again, {.overwrite = true}).ok());
      EXPECT_TRUE(*ReadFile(again) == *ReadFile(path)) << name;
      if (type != GgmlType::kF32) continue;
      for (const model::WeightInfo& info : files->weights->weights()) {
        EXPECT_EQ(Values(*opened.weights, info.name), Values(*files->weights, info.name));
      }
    }
  }
}

TEST(GgufModelTest, RefusesToOverwriteUnlessTold) {
  const ModelFiles files = SmallModel(StDtype::kF32);
  const std::string path = GgufTempPath("there.gguf");
  ASSERT_TRUE(WriteFileAtomic(path, "mine").ok());
  EXPECT_EQ(ExportGguf(files, path).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(*ReadFile(path), "mine");
}

// A source whose one weight is another number.
class Patched : public model::WeightSource {
 public:
  Patched(const model::WeightSource& base, std::string name, float value)
      : base_(base), name_(std::move(name)), value_(value) {}
  const std::string& path() const override { return base_.path(); }
  const std::vector<model::WeightInfo>& weights() const override { return base_.weights(); }
  Status ReadRows(const model::WeightInfo& weight, int64_t begin, int64_t end, StDtype dtype,
                  void* to) const override {
    std::vector<float> values(static_cast<size_t>((end - begin) * weight.columns()));
    CRIA_RETURN_IF_ERROR(base_.ReadRows(weight, begin, end, StDtype::kF32, values.data()));
    if (weight.name == name_ && begin <= 2 && 2 < end) {
      values[static_cast<size_t>((2 - begin) * weight.columns() + 5)] = value_;
    }
    return model::ConvertElements(StDtype::kF32, values.data(), static_cast<int64_t>(values.size()),
                                  dtype, to);
  }

 private:
  const model::WeightSource& base_;
  const std::string name_;
  const float value_;
};

TEST(GgufModelTest, RefusesNumbersThatTheTypeCanNotHold) {
  const ModelFiles base = SmallModel(StDtype::kF32);
  const std::string path = GgufTempPath("overflow.gguf");
  for (const std::string name :
       {"model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight"}) {
    ModelFiles files = SmallModel(StDtype::kF32);
    files.weights = std::make_unique<Patched>(*base.weights, name, 70000.0f);
    const Status status = ExportGguf(files, path, {.type = GgmlType::kF16});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Message(status).find(name + ": row 2, column 5 is 70000, which F16"),
              std::string::npos)
        << status;
    EXPECT_FALSE(Exists(path));
    files.weights = std::make_unique<Patched>(*base.weights, name, std::nanf(""));
    EXPECT_EQ(ExportGguf(files, path, {.type = GgmlType::kQ8_0}).code(),
              StatusCode::kInvalidArgument);
    // An infinity is one in F16 too.
    files.weights = std::make_unique<Patched>(*base.weights, name, INFINITY);
    EXPECT_TRUE(ExportGguf(files, path, {.type = GgmlType::kF16}).ok());
    (void)RemoveAll(path);
  }
}

// The bytes of `whole` with the first `from` replaced, same length.
std::string Replaced(std::string whole, const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  const size_t at = whole.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return whole.replace(at, to.size(), to);
}

TEST(GgufModelTest, NamesWhatAFileLacksOrHasTooMuch) {
  const std::string path = GgufTempPath("named.gguf");
  ASSERT_TRUE(ExportGguf(SmallModel(StDtype::kF32), path, {.overwrite = true}).ok());
  const std::string whole = *ReadFile(path);
  const auto u32 = [](uint32_t value) { return model::Le(value); };
  const auto key = [&](const std::string& name, uint32_t value) {
    return model::GgufKey(name, 4) + u32(value);
  };
  struct Case {
    std::string bytes;
    const char* message;
  };
  const std::vector<Case> cases = {
      {Replaced(whole, model::GgufText("llama"), model::GgufText("qwen2")), "only llama"},
      {Replaced(whole, "llama.block_count", "llama.block_kount"), "no key llama.block_count"},
      {Replaced(whole, key("llama.block_count", 2), key("llama.block_count", 3)),
       "no tensor blk.2.attn_norm.weight"},
      {Replaced(whole, key("llama.block_count", 2), key("llama.block_count", 1)),
       "\"blk.1.attn_norm.weight\" F32 [192] is none of a Llama of 1 layers"},
      {Replaced(whole, key("llama.feed_forward_length", 256), key("llama.feed_forward_length", 9)),
       "blk.0.ffn_gate.weight is F32 [256, 192]; the file's keys ask for [9, 192]"},
      {Replaced(whole, "blk.0.attn_v.weight", "blk.0.attn_x.weight"),
       "no tensor blk.0.attn_v.weight"},
      {Replaced(whole, "rope_freqs.weight", "rope_frogs.weight"), "rope_frogs.weight"},
      {Replaced(whole, key("llama.rope.dimension_count", 32),
                key("llama.rope.dimension_count", 16)),
       "all three must be the same"},
      {Replaced(whole, key("llama.attention.head_count", 6), key("llama.attention.head_count", 0)),
       "attention.head_count is 0"},
      {Replaced(whole, key("tokenizer.ggml.bos_token_id", 300),
                key("tokenizer.ggml.bos_token_id", 320)),
       "bos_token_id has 320"},
      // The type of token_embd, which precedes its offset.
      {Replaced(whole, model::GgufTensorInfo("token_embd.weight", {192, 320}, 0, 64),
                model::GgufTensorInfo("token_embd.weight", {192, 320}, 24, 64)),
       "token_embd.weight is I8; F32, F16, BF16 and Q8_0 are read"},
  };
  for (const Case& c : cases) {
    ASSERT_TRUE(WriteFileAtomic(path, c.bytes).ok());
    const auto opened = OpenGgufModel(path);
    ASSERT_FALSE(opened.ok()) << c.message;
    EXPECT_NE(Message(opened.status()).find(c.message), std::string::npos) << opened.status();
    EXPECT_NE(Message(opened.status()).find(path), std::string::npos) << opened.status();
  }
}

TEST(GgufModelTest, SurvivesTruncationsAndFlippedBytesOfItsHead) {
  const std::string path = GgufTempPath("hostile.gguf");
  ASSERT_TRUE(
      ExportGguf(SmallModel(StDtype::kF32), path, {.type = GgmlType::kQ8_0, .overwrite = true})
          .ok());
  const std::string whole = *ReadFile(path);
  const size_t head = whole.find("output.weight") + 64;
  ASSERT_LT(head, whole.size());
  const Rng rng(11, StreamOf("gguf model"));
  const auto open = [&](const std::string& bytes) {
    std::FILE* file = std::fopen(path.c_str(), "wb");
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
    return OpenGgufModel(path);
  };
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(open(whole.substr(0, rng.Below(i, whole.size() - 64))).ok());
  }
  int num_refused = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    std::string bytes = whole;
    bytes[rng.Below(1000 + 2 * i, head)] ^= static_cast<char>(1 + rng.Below(1001 + 2 * i, 255));
    const auto opened = open(bytes);
    num_refused += opened.ok() ? 0 : 1;
    if (!opened.ok()) continue;
    for (const model::WeightInfo& info : opened->weights->weights()) {
      if (info.rows() == 0) continue;
      std::vector<float> row(static_cast<size_t>(info.columns()));
      EXPECT_TRUE(
          opened->weights->ReadRows(info, info.rows() - 1, info.rows(), StDtype::kF32, row.data())
              .ok());
    }
  }
  EXPECT_GT(num_refused, 250);
}

}  // namespace
}  // namespace cria::trainer
