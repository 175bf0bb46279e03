// llama.cpp runs the GGUF files that we write: the same tokens as Hugging Face's models in fp32,
// the logits of our own forward pass, the ids of our own tokenizer.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/decoder.h"
#include "tests/peers/peer_python.h"
#include "tests/unit/trainer/models/gguf_random_model.h"
#include "trainer/models/gguf_model.h"
#include "trainer/models/hf_model.h"
#include "trainer/tokenizer/split_pattern.h"

namespace cria::trainer {
namespace {

using model::GgmlType;
using Row = std::vector<double>;

constexpr char kScript[] = "tests/peers/gguf_llama_cpp_peer.py";

std::string TempPath(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return JoinPath(folder != nullptr ? folder : "/tmp", name);
}

std::string Joined(const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) out += StrCat(out.empty() ? "" : ",", id);
  return out;
}

std::vector<Row> ParseRows(const std::string& text) {
  std::vector<Row> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    rows.emplace_back();
    for (double x; numbers >> x;) rows.back().push_back(x);
  }
  return rows;
}

int32_t ArgMax(const Row& row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// How far the best is above the next.
double Margin(Row row) {
  std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
  return row[0] - row[1];
}

// Logits after each token by our own forward pass in fp32.
std::vector<Row> OurLogits(const ModelFiles& files, const std::vector<int32_t>& tokens) {
  const std::unique_ptr<model::Ops> ops = model::cpu::NewCpuOps();
  const auto n = static_cast<int64_t>(tokens.size());
  auto decoder =
      model::LlamaDecoder::Load(files.config, {.max_positions = n, .max_rows = n, .max_logits = n},
                                *files.weights, ops.get());
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  const model::Tensor logits = (*decoder)->Forward(
      {{.sequence = 0, .tokens = tokens, .want = model::LlamaDecoder::Want::kAll}});
  std::vector<Row> rows;
  for (int64_t i = 0; i < n; ++i) {
    const float* row = logits.f32() + i * files.config.vocab;
    rows.emplace_back(row, row + files.config.vocab);
  }
  return rows;
}

TEST(GgufLlamaCppTest, ContinuesTheGoldenModelsWithTheTokensOfTransformers) {
  for (const char* name : {"gqa_llama31", "tied_headdim", "mha_linear"}) {
    const std::string folder = StrCat("tests/golden/", name);
    const auto files = OpenHfModel(folder);
    ASSERT_TRUE(files.ok()) << files.status();
    const std::string path = TempPath(StrCat(name, ".gguf"));
    const Status exported = ExportGguf(*files, path, {.overwrite = true});
    ASSERT_TRUE(exported.ok()) << exported;

    const auto expected = ReadJsonFile(folder + "/expected.json");
    ASSERT_TRUE(expected.ok()) << expected.status();
    auto tokens = (*expected)["greedy"]["prompt"].get<std::vector<int32_t>>();
    const auto continuation = (*expected)["greedy"]["continuation"].get<std::vector<int32_t>>();
    const size_t prompt = tokens.size();
    tokens.insert(tokens.end(), continuation.begin(), continuation.end());
    const auto out = RunPeer(kScript, {path, Joined(tokens)});
    if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
    ASSERT_TRUE(out.ok()) << out.status();
    const std::vector<Row> rows = ParseRows(*out);
    ASSERT_EQ(rows.size(), tokens.size());
    for (size_t i = 0; i < continuation.size(); ++i) {
      EXPECT_EQ(ArgMax(rows[prompt - 1 + i]), continuation[i]) << name << ", token " << i;
    }
  }
}

struct TypeCase {
  const char* name;
  GgmlType type;
  // Of the logits, relative by norm: what the arithmetic of llama.cpp leaves, which rounds
  // activations to the weights' type (to 8 bits by blocks for Q8_0).
  double tolerance;
};

TEST(GgufLlamaCppTest, GivesOurLogitsForEveryType) {
  const ModelFiles source = SmallModel(model::StDtype::kF32);
  std::vector<int32_t> tokens = {300, 12, 200, 77, 5, 5, 260, 31, 302, 90, 264, 7};
  for (const TypeCase& c :
       {TypeCase{"f32", GgmlType::kF32, 1e-5}, TypeCase{"f16", GgmlType::kF16, 2e-3},
        TypeCase{"bf16", GgmlType::kBF16, 2e-2}, TypeCase{"q8_0", GgmlType::kQ8_0, 3e-2}}) {
    const std::string path = TempPath(StrCat("small_", c.name, ".gguf"));
    const Status exported = ExportGguf(source, path, {.type = c.type, .overwrite = true});
    ASSERT_TRUE(exported.ok()) << exported;
    const auto files = OpenGgufModel(path);
    ASSERT_TRUE(files.ok()) << files.status();
    const std::vector<Row> ours = OurLogits(*files, tokens);
    const auto out = RunPeer(kScript, {path, Joined(tokens)});
    if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
    ASSERT_TRUE(out.ok()) << out.status();
    const std::vector<Row> theirs = ParseRows(*out);
    ASSERT_EQ(theirs.size(), ours.size());
    double square_error = 0, square = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_EQ(theirs[i].size(), ours[i].size());
      for (size_t v = 0; v < ours[i].size(); ++v) {
        square_error += (ours[i][v] - theirs[i][v]) * (ours[i][v] - theirs[i][v]);
        square += ours[i][v] * ours[i][v];
      }
    }
    const double error = std::sqrt(square_error / square);
    // 8 bits of activations may swap two logits that are nearly the same, nothing else.
    const double rms = std::sqrt(square / static_cast<double>(ours.size() * ours[0].size()));
    size_t num_clear = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      if (c.type == GgmlType::kQ8_0 && Margin(ours[i]) < 0.2 * rms) continue;
      ++num_clear;
      EXPECT_EQ(ArgMax(theirs[i]), ArgMax(ours[i])) << c.name << ", position " << i;
    }
    EXPECT_GE(num_clear, ours.size() / 3) << c.name;
    std::printf("%s: relative error of logits %.2e\n", c.name, error);
    EXPECT_LT(error, c.tolerance) << c.name;
  }
}

// One tokenizer for each way to split that we have a name for.
std::vector<TokenizerParts> Tokenizers() {
  const TokenizerParts base = SmallTokenizerParts();
  std::vector<TokenizerParts> out(5, base);
  out[1].ignore_merges = false;
  out[2].split_expressions = {kGpt2Pattern};
  out[3].split_expressions = {
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"};
  out[4].split_expressions = {R"(\p{N})", kGpt2Pattern};
  for (size_t i = 2; i < out.size(); ++i) out[i].ignore_merges = false;
  return out;
}

TEST(GgufLlamaCppTest, GivesOurIdsForEverySplit) {
  const std::vector<std::string> texts = {
      "the thing in the  beginning",
      "12345 123 1234567 1.23",
      "I'll 'LL it's\n\n\n  the\t\tend \n",
      "caf\xc3\xa9 Vi\xe1\xbb\x87t \xf0\x9f\x99\x82  x",
      "<|begin_of_text|>the<|eot_id|>\n<tool \xc3\xa9>ing",
      "   ",
      "a  b   c\r\n\r\nthe",
      "((the)) --in-- \"ing\"...\n",
  };
  for (const TokenizerParts& parts : Tokenizers()) {
    ModelFiles files = SmallModel(model::StDtype::kF32);
    files.tokenizer = Tokenizer::FromParts(parts, "parts").value();
    const std::string path = TempPath("tokenizer.gguf");
    const Status exported = ExportGguf(files, path, {.overwrite = true});
    ASSERT_TRUE(exported.ok()) << exported;
    const auto opened = OpenGgufModel(path);
    ASSERT_TRUE(opened.ok()) << opened.status();
    ASSERT_TRUE(opened->tokenizer.has_value()) << opened->tokenizer_status;
    EXPECT_EQ(opened->tokenizer->parts(), files.tokenizer->parts());

    const auto out = RunPeer(kScript, {path, "300", Json(texts).dump()});
    if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
    ASSERT_TRUE(out.ok()) << out.status();
    const std::vector<Row> rows = ParseRows(*out);
    ASSERT_EQ(rows.size(), 1 + texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<int32_t> ids;
      files.tokenizer->Encode(texts[i], {.parse_special = true}, &ids);
      EXPECT_EQ(std::vector<int32_t>(rows[1 + i].begin(), rows[1 + i].end()), ids)
          << parts.split_expressions[0] << ": " << texts[i];
    }
  }
}

}  // namespace
}  // namespace cria::trainer
