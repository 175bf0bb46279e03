#include "trainer/models/hf_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/file.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

constexpr char kGolden[] = "tests/golden/gqa_llama31";

// Names and contents of a folder's files.
std::map<std::string, std::string> FilesOf(const std::string& dir) {
  std::map<std::string, std::string> files;
  const std::vector<std::string> names = ListDir(dir).value();
  for (const std::string& name : names) {
    files[name] = ReadFile(JoinPath(dir, name)).value();
  }
  return files;
}

std::vector<float> Values(const model::WeightSource& source, const std::string& name) {
  const model::WeightInfo* info = source.Find(name);
  EXPECT_NE(info, nullptr) << name;
  std::vector<float> values(static_cast<size_t>(info->rows() * info->columns()));
  EXPECT_TRUE(source.ReadRows(*info, 0, info->rows(), model::StDtype::kF32, values.data()).ok());
  return values;
}

class HfWriterTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return JoinPath(dir_, name); }
  // The golden model with files beside it that have their own ways of writing.
  void MakeFolder(const std::string& name) {
    ASSERT_TRUE(MakeDirs(Path(name)).ok());
    for (const char* file : {"config.json", "model.safetensors"}) {
      std::filesystem::copy(JoinPath(kGolden, file), JoinPath(Path(name), file));
    }
    const std::map<std::string, std::string> side = {
        {"generation_config.json", "{\"eos_token_id\":\n [2, 3] , \"note\": \"as it is\"}"},
        {"tokenizer_config.json", "{\"chat_template\": \"{{ x }}\", \"b\": 1, \"a\": 2}\n\n"},
        {"special_tokens_map.json", "{ }"}};
    for (const auto& [file, text] : side) {
      ASSERT_TRUE(WriteFileAtomic(JoinPath(Path(name), file), text).ok());
    }
  }
  Status Write(const std::string& from, const std::string& to, const HfWriterOptions& options) {
    CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenModel(from));
    return WriteHfModel(files, to, options).status();
  }

  const std::string dir_ = FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(HfWriterTest, AnUnchangedFolderIsCopiedByteForByte) {
  MakeFolder("source");
  ASSERT_TRUE(Write(Path("source"), Path("one"), {}).ok());
  EXPECT_EQ(FilesOf(Path("one")), FilesOf(Path("source")));
  // The type that it has already is no change.
  ASSERT_TRUE(Write(Path("one"), Path("two"), {.dtype = model::StDtype::kF32}).ok());
  EXPECT_EQ(FilesOf(Path("two")), FilesOf(Path("source")));
}

TEST_F(HfWriterTest, ShardsAreSplitCopiedAndJoined) {
  MakeFolder("source");
  ASSERT_TRUE(Write(Path("source"), Path("shards"), {.max_shard_bytes = 20'000}).ok());
  auto shards = FilesOf(Path("shards"));
  EXPECT_EQ(shards.count("model.safetensors"), 0u);
  EXPECT_EQ(shards.count("model.safetensors.index.json"), 1u);
  EXPECT_GT(shards.size(), 8u);
  ASSERT_TRUE(Write(Path("shards"), Path("copy"), {}).ok());
  EXPECT_EQ(FilesOf(Path("copy")), shards);
  ASSERT_TRUE(Write(Path("shards"), Path("joined"), {.max_shard_bytes = 1 << 30}).ok());
  EXPECT_EQ(FilesOf(Path("joined")), FilesOf(Path("source")));
}

TEST_F(HfWriterTest, AnotherTypeChangesTheWeightsAndOneKey) {
  MakeFolder("source");
  ASSERT_TRUE(Write(Path("source"), Path("half"), {.dtype = model::StDtype::kBF16}).ok());
  auto before = FilesOf(Path("source")), after = FilesOf(Path("half"));
  std::string& config = before["config.json"];
  const size_t at = config.find("\"float32\"");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 9, "\"bfloat16\"");
  EXPECT_EQ(after["config.json"], config);
  EXPECT_LT(after["model.safetensors"].size(), before["model.safetensors"].size() * 6 / 10);
  for (const char* name : {"generation_config.json", "tokenizer_config.json"}) {
    EXPECT_EQ(after[name], before[name]);
  }
  // bf16 that was widened comes back as it was.
  ASSERT_TRUE(Write(Path("half"), Path("wide"), {.dtype = model::StDtype::kF32}).ok());
  ASSERT_TRUE(Write(Path("wide"), Path("half2"), {.dtype = model::StDtype::kBF16}).ok());
  EXPECT_EQ(FilesOf(Path("half2")), after);
}

TEST_F(HfWriterTest, ARunBecomesAFolder) {
  const TrainConfig config = TinyConfig(TinyData());
  const std::string run = Path("run");
  ASSERT_TRUE(RunTiny(config, {.out_dir = run}).status.ok());
  std::filesystem::copy(JoinPath(TinyData(), "tokenizer.json"), JoinPath(run, "tokenizer.json"));
  ASSERT_TRUE(Write(run, Path("out"), {}).ok());
  const StatusOr<ModelFiles> source = OpenModel(run), out = OpenModel(Path("out"));
  ASSERT_TRUE(source.ok() && out.ok()) << source.status() << out.status();
  EXPECT_EQ(out->format, ModelFormat::kHf);
  EXPECT_TRUE(CheckInitModel(out->config, config.model, "run").ok())
      << CheckInitModel(out->config, config.model, "run");
  ASSERT_TRUE(out->tokenizer.has_value());
  EXPECT_EQ(out->tokenizer->Fingerprint(), source->tokenizer->Fingerprint());
  EXPECT_EQ(out->bos_id, source->bos_id);
  EXPECT_EQ(out->eos_ids, source->eos_ids);
  for (const model::WeightInfo& weight : source->weights->weights()) {
    EXPECT_EQ(Values(*out->weights, weight.name), Values(*source->weights, weight.name));
  }
  for (const char* name : {"config.json", "generation_config.json", "tokenizer_config.json",
                           "special_tokens_map.json", "tokenizer.json"}) {
    EXPECT_EQ(out->hf_files.count(name), 1u) << name;
  }
}

TEST_F(HfWriterTest, WhatIsThereIsNotTouchedAndAFailureLeavesNothing) {
  MakeFolder("source");
  ASSERT_TRUE(MakeDirs(Path("taken")).ok());
  const Status taken = Write(Path("source"), Path("taken"), {});
  EXPECT_EQ(taken.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(taken).find("taken exists"), std::string::npos) << taken;

  const std::atomic<bool> stop{true};
  EXPECT_EQ(Write(Path("source"), Path("out"), {.stop = &stop}).code(), StatusCode::kCancelled);
  EXPECT_EQ(
      Write(Path("source"), Path("out"), {.dtype = model::StDtype::kBF16, .stop = &stop}).code(),
      StatusCode::kCancelled);
  EXPECT_EQ(ListDir(dir_).value(), (std::vector<std::string>{"source", "taken"}));
}

// A model whose weights don't fit its config must not go on to others' programs.
TEST_F(HfWriterTest, WeightsAreCheckedAgainstTheConfigFirst) {
  MakeFolder("source");
  std::string config = *ReadFile(JoinPath(Path("source"), "config.json"));
  config.replace(config.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 3");
  ASSERT_TRUE(WriteFileAtomic(JoinPath(Path("source"), "config.json"), config).ok());
  const Status status = Write(Path("source"), Path("out"), {});
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(Message(status).find("model.layers.2."), std::string::npos) << status;
  EXPECT_FALSE(Exists(Path("out")));
}

}  // namespace
}  // namespace cria::trainer
