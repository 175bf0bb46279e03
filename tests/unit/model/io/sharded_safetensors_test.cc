#include "model/io/sharded_safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"
#include "model/io/hf_weights_writer.h"
#include "tests/support/process.h"

namespace cria::model {
namespace {

class ShardedSafetensorsTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return JoinPath(dir_, name); }
  // A file of F32 weights of shape [2, 2], each full of its own number.
  void WriteShard(const std::string& name, const std::vector<std::pair<std::string, float>>& all) {
    std::vector<std::string> bytes;
    std::vector<TensorToWrite> tensors;
    bytes.reserve(all.size());
    for (const auto& [tensor, value] : all) {
      const std::vector<float> values(4, value);
      bytes.emplace_back(reinterpret_cast<const char*>(values.data()), 16);
      tensors.push_back({tensor, StDtype::kF32, {2, 2}, bytes.back()});
    }
    ASSERT_TRUE(WriteSafetensors(Path(name), tensors, {{"format", "pt"}}).ok());
  }
  void WriteIndex(const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(Path(kSafetensorsIndexFile), text).ok());
  }
  void WriteTwoShards() {
    WriteShard("model-00001-of-00002.safetensors", {{"model.embed_tokens.weight", 1}, {"b", 2}});
    WriteShard("model-00002-of-00002.safetensors", {{"lm_head.weight", 3}});
    WriteIndex(R"({"metadata": {"total_size": 48}, "weight_map": {
        "model.embed_tokens.weight": "model-00001-of-00002.safetensors",
        "b": "model-00001-of-00002.safetensors",
        "lm_head.weight": "model-00002-of-00002.safetensors"}})");
  }
  void ExpectError(StatusCode code, const std::vector<std::string>& said) {
    const Status status = SafetensorsSource::Open(dir_).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& part : said) {
      EXPECT_NE(Message(status).find(part), std::string::npos) << part << " in " << status;
    }
  }

  const std::string dir_ = FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ShardedSafetensorsTest, ReadsShardsAsOneSource) {
  WriteTwoShards();
  const auto source = SafetensorsSource::Open(dir_);
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<std::string> names;
  for (const WeightInfo& weight : (*source)->weights()) names.push_back(weight.name);
  EXPECT_EQ(names, (std::vector<std::string>{"b", "lm_head.weight", "model.embed_tokens.weight"}));
  float row[2];
  const WeightInfo* head = (*source)->Find("lm_head.weight");
  ASSERT_TRUE((*source)->ReadRows(*head, 1, 2, StDtype::kF32, row).ok());
  EXPECT_EQ(row[0], 3);
  EXPECT_EQ((*source)->files().size(), 2u);
  EXPECT_EQ((*source)->index_path(), Path(kSafetensorsIndexFile));
  EXPECT_EQ((*source)->Find("c"), nullptr);
}

TEST_F(ShardedSafetensorsTest, AMissingShardOrTensorIsNamed) {
  ExpectError(StatusCode::kNotFound, {dir_, "model.safetensors"});
  WriteTwoShards();
  ASSERT_TRUE(RemoveAll(Path("model-00002-of-00002.safetensors")).ok());
  ExpectError(StatusCode::kDataLoss, {"model-00002-of-00002.safetensors", "missing"});
  WriteShard("model-00002-of-00002.safetensors", {{"something.else", 3}});
  ExpectError(StatusCode::kDataLoss, {"lm_head.weight", "model-00002-of-00002.safetensors"});
  WriteShard("model-00002-of-00002.safetensors", {{"lm_head.weight", 3}, {"more", 4}});
  ExpectError(StatusCode::kDataLoss, {"tensor more", "weight_map"});
}

// An index is a list of paths from a stranger.
TEST_F(ShardedSafetensorsTest, ShardsOutsideTheFolderAreRefused) {
  WriteShard("model-00001-of-00002.safetensors", {{"a", 1}});
  for (const std::string shard :
       {"../model-00001-of-00002.safetensors", "/etc/passwd", "", ".", "..", "a/b.safetensors",
        "model.bin", "a\\\\b.safetensors", "x\\u0000.safetensors"}) {
    WriteIndex(StrCat(R"({"weight_map": {"a": ")", shard, R"("}})"));
    ExpectError(StatusCode::kInvalidArgument, {kSafetensorsIndexFile, "weight_map"});
  }
}

TEST_F(ShardedSafetensorsTest, DamagedIndexesAreRefused) {
  for (const char* text :
       {"", "{}", "[1]", R"({"weight_map": {}})", R"({"weight_map": 3})",
        R"({"weight_map": {"a": 3}})", R"({"weight_map": {"a": "x.safetensors"})",
        R"({"metadata": {"total_size": "many"}, "weight_map": {"a": "x.safetensors"}})",
        R"({"metadata": {"total_size": -1}, "weight_map": {"a": "x.safetensors"}})"}) {
    WriteIndex(text);
    ExpectError(StatusCode::kInvalidArgument, {kSafetensorsIndexFile});
  }
}

// total_size is for progress bars: transformers loads a folder whose own is wrong.
TEST_F(ShardedSafetensorsTest, AWrongTotalSizeIsNoError) {
  WriteShard("x.safetensors", {{"a", 1}});
  WriteIndex(R"({"metadata": {"total_size": 17.0}, "weight_map": {"a": "x.safetensors"}})");
  testing::internal::CaptureStderr();
  EXPECT_TRUE(SafetensorsSource::Open(dir_).ok());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("total_size is 17"), std::string::npos) << said;
  EXPECT_NE(said.find("16 bytes"), std::string::npos) << said;
}

TEST_F(ShardedSafetensorsTest, NamesWithoutTheirPrefixGetIt) {
  WriteShard("model.safetensors", {{"embed_tokens.weight", 1},
                                   {"norm.weight", 2},
                                   {"lm_head.weight", 3},
                                   {"layers.0.self_attn.rotary_emb.inv_freq", 4}});
  const auto source = SafetensorsSource::Open(dir_);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->weights().size(), 3u);
  EXPECT_NE((*source)->Find("model.embed_tokens.weight"), nullptr);
  EXPECT_NE((*source)->Find("model.norm.weight"), nullptr);
  EXPECT_NE((*source)->Find("lm_head.weight"), nullptr);
}

TEST_F(ShardedSafetensorsTest, QuantisedWeightsWithScalesAreRefused) {
  for (const char* scale : {"w.weight_scale", "w.weight_scale_inv", "w.input_scale"}) {
    WriteShard("model.safetensors", {{"w.weight", 1}, {scale, 2}});
    ExpectError(StatusCode::kInvalidArgument, {scale, "scales"});
  }
}

TEST_F(ShardedSafetensorsTest, Fp8IsReadAsValues) {
  const std::string e4m3("\x38\x40\xb8\x00", 4);  // 1, 2, -1, 0
  ASSERT_TRUE(
      WriteSafetensors(Path("model.safetensors"), {{"w", StDtype::kF8E4M3, {2, 2}, e4m3}}, {})
          .ok());
  const auto source = SafetensorsSource::Open(dir_);
  ASSERT_TRUE(source.ok()) << source.status();
  float values[4];
  ASSERT_TRUE((*source)->ReadRows((*source)->weights()[0], 0, 2, StDtype::kF32, values).ok());
  EXPECT_EQ(std::vector<float>(values, values + 4), (std::vector<float>{1, 2, -1, 0}));
}

TEST_F(ShardedSafetensorsTest, ScalarsAndEmptyTensorsAreNoWeights) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {0}, {0, int64_t{1} << 60}, {1, 1, 1}}) {
    const std::string data(shape.empty() || shape.size() == 3 ? 4 : 0, 'x');
    ASSERT_TRUE(
        WriteSafetensors(Path("model.safetensors"), {{"w", StDtype::kF32, shape, data}}, {}).ok());
    ExpectError(StatusCode::kInvalidArgument, {"tensor w"});
  }
}

// What transformers 5.24 wrote for such a model with max_shard_size of 40 bytes.
TEST_F(ShardedSafetensorsTest, WritesShardsInTheOrderOfTheNames) {
  WriteShard("model.safetensors", {{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}, {"e", 5}});
  const auto source = SafetensorsSource::Open(dir_);
  ASSERT_TRUE(source.ok()) << source.status();
  const std::string out = Path("out");
  ASSERT_TRUE(MakeDirs(out).ok());
  const auto written = WriteHfWeights(**source, {"d", "a", "c", "b"}, {.max_shard_bytes = 40}, out);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->files, (std::vector<std::string>{"model-00001-of-00002.safetensors",
                                                      "model-00002-of-00002.safetensors"}));
  EXPECT_EQ(written->bytes, 64);
  EXPECT_EQ(*ReadFile(JoinPath(out, kSafetensorsIndexFile)), R"({
  "metadata": {
    "total_parameters": 16,
    "total_size": 64
  },
  "weight_map": {
    "a": "model-00001-of-00002.safetensors",
    "b": "model-00002-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors",
    "d": "model-00001-of-00002.safetensors"
  }
}
)");
  const auto again = SafetensorsSource::Open(out);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->weights().size(), 4u);
}

TEST_F(ShardedSafetensorsTest, AWeightAboveTheLimitHasAShardOfItsOwn) {
  WriteShard("model.safetensors", {{"a", 1}, {"b", 2}});
  const auto source = SafetensorsSource::Open(dir_);
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_TRUE(MakeDirs(Path("out")).ok());
  const auto written = WriteHfWeights(**source, {"a", "b"}, {.max_shard_bytes = 3}, Path("out"));
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->files.size(), 2u);
}

TEST_F(ShardedSafetensorsTest, ConvertsOnTheWayAndStopsWhenAsked) {
  WriteShard("model.safetensors", {{"a", 1.5f}, {"b", 2}});
  const auto source = SafetensorsSource::Open(dir_);
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_TRUE(MakeDirs(Path("out")).ok());
  ASSERT_TRUE(WriteHfWeights(**source, {"a", "b"}, {.dtype = StDtype::kBF16}, Path("out")).ok());
  const auto file = SafetensorsFile::Open(Path("out/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->Data(*file->Find("a")), std::string("\xc0\x3f\xc0\x3f\xc0\x3f\xc0\x3f", 8));
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const std::atomic<bool> stop{true};
  const Status stopped =
      WriteHfWeights(**source, {"a", "b"}, {.stop = &stop}, Path("out")).status();
  EXPECT_EQ(stopped.code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace cria::model
