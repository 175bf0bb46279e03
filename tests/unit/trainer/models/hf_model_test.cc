#include "trainer/models/hf_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

// A folder with the golden model (vocabulary 128) and whatever files a test adds.
class HfModelTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy(JoinPath("tests/golden/gqa_llama31", name), JoinPath(dir_, name));
    }
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(JoinPath(dir_, name), text).ok());
  }
  ModelFiles Open() {
    StatusOr<ModelFiles> files = OpenModel(dir_);
    EXPECT_TRUE(files.ok()) << files.status();
    return files.ok() ? std::move(*files) : ModelFiles{};
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

TEST_F(HfModelTest, OpensAFolderWithoutATokenizer) {
  const ModelFiles files = Open();
  EXPECT_EQ(files.format, ModelFormat::kHf);
  EXPECT_EQ(files.config.layers, 2);
  EXPECT_EQ(files.config.rope_scaling.type, "llama3");
  EXPECT_EQ(files.bos_id, 1);
  EXPECT_EQ(files.eos_ids, std::vector<int32_t>{2});
  EXPECT_FALSE(files.tokenizer.has_value());
  EXPECT_EQ(files.tokenizer_status.code(), StatusCode::kNotFound);
  EXPECT_EQ(files.hf_files.size(), 1u);
  EXPECT_NE(files.weights->Find("lm_head.weight"), nullptr);
}

// Llama 3 instruct ends a turn by <|eot_id|>, which config.json alone does not say.
TEST_F(HfModelTest, GenerationConfigSaysWhatEndsAGeneration) {
  Write("generation_config.json", R"({"bos_token_id": 5, "eos_token_id": [7, 9]})");
  EXPECT_EQ(Open().eos_ids, (std::vector<int32_t>{7, 9}));
  EXPECT_EQ(Open().bos_id, 5);
  Write("generation_config.json", R"({"temperature": 0.6})");
  EXPECT_EQ(Open().eos_ids, std::vector<int32_t>{2});
  Write("generation_config.json", R"({"eos_token_id": "two"})");
  ExpectError({"generation_config.json", "eos_token_id", "two"});
  Write("generation_config.json", "{");
  ExpectError({"generation_config.json"});
}

TEST_F(HfModelTest, FindsTheChatTemplateInEachOfItsPlaces) {
  EXPECT_EQ(Open().chat_template, "");
  Write("tokenizer_config.json", R"({"chat_template": "{{ one }}"})");
  EXPECT_EQ(Open().chat_template, "{{ one }}");
  Write("tokenizer_config.json",
        R"({"chat_template": [{"name": "rag", "template": "{{ rag }}"},
                              {"name": "default", "template": "{{ two }}"}]})");
  EXPECT_EQ(Open().chat_template, "{{ two }}");
  Write("chat_template.jinja", "{{ three }}");
  EXPECT_EQ(Open().chat_template, "{{ three }}");
  EXPECT_EQ(Open().hf_files.size(), 3u);
}

TEST_F(HfModelTest, ATokenizerBeyondTheVocabularyIsRefused) {
  Write("tokenizer.json", *ReadFile(JoinPath(TinyData(), "tokenizer.json")));  // 300 tokens
  ExpectError({"tokenizer.json", "299", "128"});
}

// A Llama 2's tokenizer: the weights can be used without it.
TEST_F(HfModelTest, ATokenizerThatWeCannotRunLeavesTheWeights) {
  Write("tokenizer.json",
        R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "byte_fallback": true}})");
  const ModelFiles files = Open();
  EXPECT_FALSE(files.tokenizer.has_value());
  EXPECT_EQ(files.tokenizer_status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(Message(files.tokenizer_status).find("byte_fallback"), std::string::npos);
  Write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": )");
  ExpectError({"tokenizer.json"});
}

TEST_F(HfModelTest, ErrorsNameTheFile) {
  Write("config.json", R"({"model_type": "gemma"})");
  ExpectError({"config.json", "model_type", "gemma"});
  ASSERT_TRUE(RemoveAll(JoinPath(dir_, "model.safetensors")).ok());
  std::filesystem::copy_file("tests/golden/gqa_llama31/config.json", JoinPath(dir_, "config.json"),
                             std::filesystem::copy_options::overwrite_existing);
  ExpectError({dir_, "model.safetensors"});
  ASSERT_TRUE(RemoveAll(JoinPath(dir_, "config.json")).ok());
  ExpectError({dir_, "config.json", "params.json", "checkpoints"});
}

}  // namespace
}  // namespace cria::trainer
