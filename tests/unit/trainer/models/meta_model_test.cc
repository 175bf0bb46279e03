#include "trainer/models/meta_model.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/support/process.h"
#include "tests/unit/model/io/torch_builder.h"
#include "trainer/models/model_files.h"
#include "trainer/tokenizer/tiktoken.h"

namespace cria::trainer {
namespace {

constexpr int64_t kSpecials = 256;

std::string Base64OfByte(int byte) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  return {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
}

// A tokenizer.model of the 256 bytes.
std::string ByteVocabulary() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += StrCat(Base64OfByte(byte), " ", byte, "\n");
  return text;
}

class MetaModelTest : public testing::Test {
 protected:
  // One layer of 8, two heads over one.
  void Write(int64_t vocab, const std::string& params) {
    model::TorchBuilder builder;
    const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
      int64_t n = 1;
      for (const int64_t dim : shape) n *= dim;
      const std::vector<int64_t> strides =
          shape.size() == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{shape[1], 1};
      builder.Add(name + ".weight", model::StDtype::kBF16, shape, strides,
                  std::string(static_cast<size_t>(2 * n), static_cast<char>(name.size())));
    };
    add("tok_embeddings", {vocab, 8});
    add("norm", {8});
    add("output", {vocab, 8});
    add("layers.0.attention.wq", {8, 8});
    add("layers.0.attention.wk", {4, 8});
    add("layers.0.attention.wv", {4, 8});
    add("layers.0.attention.wo", {8, 8});
    add("layers.0.feed_forward.w1", {32, 8});
    add("layers.0.feed_forward.w3", {32, 8});
    add("layers.0.feed_forward.w2", {8, 32});
    add("layers.0.attention_norm", {8});
    add("layers.0.ffn_norm", {8});
    Put("consolidated.00.pth", builder.Build());
    Put("params.json", StrCat(R"({"dim": 8, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1,
        "multiple_of": 32, "norm_eps": 1e-05)",
                              params, "}"));
  }
  void Put(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(WriteFileAtomic(JoinPath(dir_, name), bytes).ok());
  }
  void ExpectError(const std::vector<std::string>& said) {
    const Status status = OpenModel(dir_).status();
    ASSERT_FALSE(status.ok());
    for (const std::string& part : said) {
      EXPECT_NE(Message(status).find(part), std::string::npos) << part << " in " << status;
    }
  }

  const std::string dir_ = FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(MetaModelTest, TheTokenizersSpecialsFollowItsVersion) {
  Put("tokenizer.model", ByteVocabulary());
  const auto id_of = [](const std::vector<std::string>& names, const char* name) {
    return static_cast<int32_t>(256 +
                                (std::find(names.begin(), names.end(), name) - names.begin()));
  };
  for (const bool scaled : {true, false}) {
    Write(256 + kSpecials, scaled ? R"(, "use_scaled_rope": true)" : "");
    const auto files = OpenModel(dir_);
    ASSERT_TRUE(files.ok()) << files.status();
    ASSERT_TRUE(files->tokenizer.has_value()) << files->tokenizer_status;
    const auto names = TiktokenSpecialNames(scaled ? TiktokenSpecials::kLlama31HuggingFace
                                                   : TiktokenSpecials::kLlama30);
    EXPECT_EQ(files->bos_id, id_of(names, "<|begin_of_text|>"));
    std::vector<int32_t> ends = {id_of(names, "<|end_of_text|>"), id_of(names, "<|eot_id|>")};
    if (scaled) ends.insert(ends.begin() + 1, id_of(names, "<|eom_id|>"));
    EXPECT_EQ(files->eos_ids, ends);
    EXPECT_EQ(files->config.vocab, 512);
  }
}

TEST_F(MetaModelTest, AVocabularyWithoutRoomForSpecialsHasNone) {
  Put("tokenizer.model", ByteVocabulary());
  Write(256, "");
  const auto files = OpenModel(dir_);
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_TRUE(files->tokenizer.has_value());
  EXPECT_EQ(files->tokenizer->vocab_size(), 256);
  EXPECT_TRUE(files->eos_ids.empty());
  Write(255, "");
  ExpectError({"tokenizer.model", "256 tokens", "255"});
}

TEST_F(MetaModelTest, SentencePieceIsNamedAndTheWeightsStay) {
  Write(300, "");
  // As SentencePiece's files begin: a protocol buffer's first piece, "<unk>".
  Put("tokenizer.model", std::string("\x0a\x0e\x0a\x05<unk>\x15\x00\x00\x00\x00\x18\x02", 16) +
                             std::string("\x0a\x0a\x0a\x03<s>\x15\x00\x00\x00\x00\x18\x03", 14));
  const auto files = OpenModel(dir_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_FALSE(files->tokenizer.has_value());
  EXPECT_EQ(files->tokenizer_status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(Message(files->tokenizer_status).find("entence"), std::string::npos)
      << files->tokenizer_status;
}

TEST_F(MetaModelTest, SizesThatDisagreeAreNamedWithBoth) {
  Write(300, R"(, "vocab_size": 301)");
  ExpectError({"params.json", "301", "300"});
  Write(300, R"(, "rope_theta": 0.5)");
  ExpectError({"params.json", "rope_theta", "0.5"});
  ASSERT_TRUE(RemoveAll(JoinPath(dir_, "consolidated.00.pth")).ok());
  Put("params.json", R"({"dim": 8, "n_layers": 1, "n_heads": 2})");
  ExpectError({dir_, "consolidated.00.pth"});
}

TEST_F(MetaModelTest, TheRopeFactorCanBeOverridden) {
  Write(300, R"(, "use_scaled_rope": true)");
  const auto files = OpenMetaModel(dir_, {.rope_factor = 32});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->config.rope_scaling.factor, 32);
  EXPECT_EQ(OpenModel(dir_)->config.rope_scaling.factor, 8);
}

}  // namespace
}  // namespace cria::trainer
