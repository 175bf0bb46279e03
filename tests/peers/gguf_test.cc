// The package gguf reads what we write, byte for byte what its own conversion gives; we read what
// it writes.

#include "model/io/gguf.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/io/safetensors.h"
#include "tests/peers/peer_python.h"
#include "tests/unit/trainer/models/gguf_random_model.h"
#include "trainer/models/gguf_model.h"

namespace cria::trainer {
namespace {

using model::GgmlType;

std::string TempFolder(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = JoinPath(folder != nullptr ? folder : "/tmp", name);
  (void)RemoveAll(path);
  (void)MakeDirs(path);
  return path;
}

Status WriteSource(const model::WeightSource& source, const std::string& path) {
  std::vector<std::string> data;
  std::vector<model::TensorToWrite> tensors;
  data.reserve(source.weights().size());
  for (const model::WeightInfo& info : source.weights()) {
    data.emplace_back(static_cast<size_t>(info.rows() * info.columns()) * sizeof(float), '\0');
    CRIA_RETURN_IF_ERROR(
        source.ReadRows(info, 0, info.rows(), model::StDtype::kF32, data.back().data()));
    tensors.push_back({info.name, model::StDtype::kF32, info.shape, data.back()});
  }
  return model::WriteSafetensors(path, tensors, {}).status();
}

// Every key that is not of the tokenizer's tables.
Json ExpectedKeys(const ModelFiles& files) {
  return Json{{"general.architecture", "llama"},
              {"general.quantization_version", 2},
              {"llama.vocab_size", 320},
              {"llama.context_length", 1024},
              {"llama.embedding_length", 192},
              {"llama.block_count", 2},
              {"llama.feed_forward_length", 256},
              {"llama.attention.head_count", 6},
              {"llama.attention.head_count_kv", 2},
              {"llama.attention.layer_norm_rms_epsilon", 1e-5},
              {"llama.rope.dimension_count", 32},
              {"llama.rope.freq_base", 500000.0},
              {"llama.rope.scaling.original_context_length", 256},
              {"tokenizer.ggml.model", "gpt2"},
              {"tokenizer.ggml.pre", "llama-bpe"},
              {"tokenizer.ggml.bos_token_id", 300},
              {"tokenizer.ggml.eos_token_id", 301},
              {"tokenizer.ggml.eot_token_id", 302},
              {"tokenizer.ggml.add_bos_token", true},
              {"tokenizer.chat_template", files.chat_template}};
}

void ExpectValues(const std::string& path) {
  const auto file = model::GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->alignment(), 64u);
  EXPECT_EQ(*file->Integer("v.u8"), 255);
  EXPECT_EQ(*file->Integer("v.i8"), -128);
  EXPECT_EQ(*file->Integer("v.u16"), 65535);
  EXPECT_EQ(*file->Integer("v.i16"), -32768);
  EXPECT_EQ(*file->Integer("v.u32"), 4294967295);
  EXPECT_EQ(*file->Integer("v.i32"), -2147483648);
  EXPECT_EQ(*file->Real("v.f32"), 0.1);
  EXPECT_EQ(*file->Integer("v.u64"), int64_t{1} << 62);
  EXPECT_EQ(*file->Integer("v.i64"), -(int64_t{1} << 62));
  EXPECT_EQ(*file->Real("v.f64"), 0.1);
  EXPECT_TRUE(*file->Bool("v.bool"));
  EXPECT_EQ(*file->String("v.string"), "caf\xc3\xa9 \xf0\x9f\x99\x82");
  EXPECT_EQ(*file->Integers("v.ints"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(*file->Strings("v.strings"), (std::vector<std::string_view>{"a", "\xc3\xa9"}));
  ASSERT_NE(file->Find("t"), nullptr);
  EXPECT_EQ(file->Find("t")->Describe(), "F32 [2, 3]");
  const float five = 5;
  EXPECT_EQ(file->Data(*file->Find("t")).substr(20),
            std::string_view(reinterpret_cast<const char*>(&five), sizeof(five)));
  EXPECT_EQ(file->Find("u")->offset, 64u);
}

TEST(GgufPeerTest, AgreesWithThePackageGgufBothWays) {
  const std::string folder = TempFolder("gguf_peer");
  const ModelFiles files = SmallModel(model::StDtype::kF32);
  const std::vector<std::string> types = {"f32", "f16", "bf16", "q8_0"};
  for (const std::string& type : types) {
    const Status exported = ExportGguf(files, StrCat(folder, "/ours_", type, ".gguf"),
                                       {.type = *model::GgmlTypeFromOption(type)});
    ASSERT_TRUE(exported.ok()) << exported;
  }
  ASSERT_TRUE(WriteSource(*files.weights, folder + "/source.safetensors").ok());
  ASSERT_TRUE(WriteFileAtomic(folder + "/expected.json", ExpectedKeys(files).dump()).ok());
  const auto out = RunPeer("tests/peers/gguf_peer.py", {folder});
  if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
  ASSERT_TRUE(out.ok()) << out.status();
  ExpectValues(folder + "/values.gguf");
  // Their file has our keys and tensors in another order: it is the same model.
  for (const std::string& type : types) {
    const auto theirs = OpenGgufModel(StrCat(folder, "/theirs_", type, ".gguf"));
    ASSERT_TRUE(theirs.ok()) << theirs.status();
    const std::string again = StrCat(folder, "/again_", type, ".gguf");
    const Status exported = ExportGguf(*theirs, again);
    ASSERT_TRUE(exported.ok()) << exported;
    EXPECT_TRUE(*ReadFile(again) == *ReadFile(StrCat(folder, "/ours_", type, ".gguf"))) << type;
  }
}

}  // namespace
}  // namespace cria::trainer
