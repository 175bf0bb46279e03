// transformers reads what we write and writes what we read: configs, weights, shards, tokenizers.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/decoder.h"
#include "tests/peers/peer_python.h"
#include "tests/support/process.h"
#include "tests/unit/trainer/models/gguf_random_model.h"
#include "trainer/models/hf_writer.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

constexpr char kScript[] = "tests/peers/hf_peer.py";

std::vector<Json> ParseLines(const std::string& text) {
  std::vector<Json> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    StatusOr<Json> json = ParseJson(line, "the peer's line");
    EXPECT_TRUE(json.ok()) << json.status();
    if (json.ok()) out.push_back(std::move(*json));
  }
  return out;
}

std::map<std::string, std::string> FilesOf(const std::string& dir) {
  std::map<std::string, std::string> files;
  const std::vector<std::string> names = ListDir(dir).value();
  for (const std::string& name : names) files[name] = ReadFile(JoinPath(dir, name)).value();
  return files;
}

// Our reading of a config.json is transformers'.
void ExpectSameConfig(const model::LlamaConfig& c, const Json& t) {
  EXPECT_EQ(c.layers, t["layers"]);
  EXPECT_EQ(c.dim, t["dim"]);
  EXPECT_EQ(c.heads, t["heads"]);
  EXPECT_EQ(c.kv_heads, t["kv_heads"]);
  EXPECT_EQ(c.HeadDim(), t["head_dim"]);
  EXPECT_EQ(c.ffn, t["ffn"]);
  EXPECT_EQ(c.vocab, t["vocab"]);
  EXPECT_EQ(c.max_positions, t["positions"]);
  EXPECT_EQ(c.norm_eps, t["eps"]);
  EXPECT_EQ(c.tied_head, t["tied"]);
  EXPECT_EQ(c.rope_theta, t["rope_theta"]);
  const model::RopeScaling& rope = c.rope_scaling;
  EXPECT_EQ(rope.type, t["rope_type"]);
  EXPECT_EQ(rope.factor, t["rope_factor"]);
  if (rope.type != "llama3") return;
  EXPECT_EQ(rope.low_freq_factor, t["rope_low"]);
  EXPECT_EQ(rope.high_freq_factor, t["rope_high"]);
  EXPECT_EQ(rope.original_max_positions, t["rope_original"]);
}

TEST(HfPeerTest, FoldersOfTransformersGoThroughByteForByte) {
  const std::string dir = FreshDir("made");
  const auto out = RunPeer(kScript, {"make", dir});
  if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
  ASSERT_TRUE(out.ok()) << out.status();
  const std::vector<Json> made = ParseLines(*out);
  EXPECT_EQ(made.size(), 5u);
  for (const Json& expected : made) {
    const std::string name = expected["name"], whole = JoinPath(dir, name);
    SCOPED_TRACE(name);
    const auto files = OpenModel(whole), shards = OpenModel(whole + "_shards");
    ASSERT_TRUE(files.ok() && shards.ok()) << files.status() << shards.status();
    ExpectSameConfig(files->config, expected);
    // Copied; split as transformers splits; joined again.
    ASSERT_TRUE(WriteHfModel(*files, whole + "_copy", {}).ok());
    EXPECT_EQ(FilesOf(whole + "_copy"), FilesOf(whole));
    ASSERT_TRUE(WriteHfModel(*shards, whole + "_copied_shards", {}).ok());
    EXPECT_EQ(FilesOf(whole + "_copied_shards"), FilesOf(whole + "_shards"));
    ASSERT_TRUE(WriteHfModel(*files, whole + "_split", {.max_shard_bytes = 60'000}).ok());
    EXPECT_EQ(FilesOf(whole + "_split"), FilesOf(whole + "_shards"));
    ASSERT_TRUE(WriteHfModel(*shards, whole + "_joined", {.max_shard_bytes = 5'000'000}).ok());
    EXPECT_EQ(FilesOf(whole + "_joined"), FilesOf(whole));
  }
}

// In the style of transformers 4, by hand; and what we write for the same models.
TEST(HfPeerTest, ConfigsOfVersion4AndOursAreReadAlike) {
  const std::string common = R"("architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
      "num_attention_heads": 4, "vocab_size": 300, "bos_token_id": 1, "torch_dtype": "bfloat16")";
  const std::map<std::string, std::string> configs = {
      {"llama2", R"("max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_scaling": null)"},
      {"llama3", R"("max_position_embeddings": 8192, "rope_theta": 500000.0, "rms_norm_eps": 1e-05,
                    "num_key_value_heads": 2, "eos_token_id": 128001)"},
      {"llama31", R"("max_position_embeddings": 131072, "rope_theta": 500000.0,
                     "num_key_value_heads": 2, "eos_token_id": [1, 2, 3], "rope_scaling": {
                     "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"})"},
      {"llama32", R"("max_position_embeddings": 131072, "rope_theta": 500000.0, "head_dim": 32,
                     "num_key_value_heads": 1, "tie_word_embeddings": true, "rope_scaling": {
                     "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"})"},
      {"linear_old_key", R"("max_position_embeddings": 4096, "rope_scaling": {
                            "type": "linear", "factor": 2.5})"},
      {"both", R"("rope_theta": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0},
                  "rope_parameters": {"rope_type": "default", "rope_theta": 77.0})"}};
  const std::string dir = FreshDir("configs");
  for (const auto& [name, rest] : configs) {
    const std::string folder = JoinPath(dir, name);
    ASSERT_TRUE(MakeDirs(folder).ok());
    ASSERT_TRUE(
        WriteFileAtomic(JoinPath(folder, "config.json"), StrCat("{", common, ", ", rest, "}"))
            .ok());
    const auto config = model::LlamaConfigFromHuggingFace(JoinPath(folder, "config.json"));
    ASSERT_TRUE(config.ok()) << config.status();
    ModelFiles files = RandomModel(*config, model::StDtype::kF16);
    files.format = ModelFormat::kRun;  // so that config.json is made
    ASSERT_TRUE(WriteHfModel(files, folder + "_ours", {}).ok());
  }
  const auto out = RunPeer(kScript, {"configs", dir});
  if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
  ASSERT_TRUE(out.ok()) << out.status();
  const std::vector<Json> read = ParseLines(*out);
  EXPECT_EQ(read.size(), 2 * configs.size());
  for (const Json& expected : read) {
    const std::string name = expected["name"];
    SCOPED_TRACE(name);
    const auto config =
        model::LlamaConfigFromHuggingFace(JoinPath(JoinPath(dir, name), "config.json"));
    ASSERT_TRUE(config.ok()) << config.status();
    ExpectSameConfig(*config, expected);
    EXPECT_EQ(expected["dtype"], name.ends_with("_ours") ? "torch.float16" : "torch.bfloat16");
  }
}

TEST(HfPeerTest, AnExportedFolderGivesTheSameLogitsAndIds) {
  ModelFiles source = SmallModel(model::StDtype::kF32);
  source.format = ModelFormat::kRun;
  const std::string dir = FreshDir("exported"), folder = JoinPath(dir, "model");
  ASSERT_TRUE(WriteHfModel(source, folder, {.max_shard_bytes = 400'000}).ok());
  const std::vector<int32_t> ids = {300, 12, 200, 77, 5, 5, 260, 31, 302, 90, 264, 7};
  const std::vector<std::string> texts = {"In the beginning", "  12345 caf\xc3\xa9\n\n\tx", "",
                                          "<|eot_id|>the<tool \xc3\xa9> end",
                                          "I'll DON'T \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80"};
  Json request;
  request["ids"] = ids;
  request["texts"] = texts;
  const std::string request_path = JoinPath(dir, "request.json");
  ASSERT_TRUE(WriteJsonFile(request_path, request).ok());
  const auto out = RunPeer(kScript, {"load", folder, request_path});
  if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
  ASSERT_TRUE(out.ok()) << out.status();
  const StatusOr<Json> answer = ParseJson(*out, "the peer's answer");
  ASSERT_TRUE(answer.ok()) << answer.status();

  const auto files = OpenModel(folder);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto ops = model::cpu::NewCpuOps();
  const auto n = static_cast<int64_t>(ids.size());
  auto decoder =
      model::LlamaDecoder::Load(files->config, {.max_positions = n, .max_rows = n, .max_logits = n},
                                *files->weights, ops.get());
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  const model::Tensor logits = (*decoder)->Forward(
      {{.sequence = 0, .tokens = ids, .want = model::LlamaDecoder::Want::kAll}});
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t v = 0; v < files->config.vocab; ++v) {
      const double theirs = (*answer)["logits"][static_cast<size_t>(i)][static_cast<size_t>(v)];
      worst = std::max(worst, std::abs(theirs - logits.f32()[i * files->config.vocab + v]));
      largest = std::max(largest, std::abs(theirs));
    }
  }
  EXPECT_LT(worst, 1e-5 * std::max(1.0, largest)) << "of logits up to " << largest;
  EXPECT_GT(largest, 0.1);

  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<int32_t> encoded;
    files->tokenizer->Encode(texts[i], {.parse_special = true, .add_template = true}, &encoded);
    EXPECT_EQ((*answer)["texts"][i].get<std::vector<int32_t>>(), encoded) << texts[i];
    EXPECT_EQ((*answer)["decoded"][i].get<std::string>(),
              files->tokenizer->Decode(encoded, /*skip_special=*/true));
  }
  EXPECT_EQ((*answer)["bos"], 300);
  EXPECT_EQ((*answer)["eos"], source.eos_ids[0]);
  EXPECT_EQ((*answer)["generation_eos"],
            source.eos_ids.size() == 1 ? Json(source.eos_ids[0]) : Json(source.eos_ids));
  EXPECT_EQ((*answer)["chat"], source.chat_template);
  EXPECT_EQ((*answer)["dtype"], "torch.float32");
}

}  // namespace
}  // namespace cria::trainer
