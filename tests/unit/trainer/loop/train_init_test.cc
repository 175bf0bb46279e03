// A run that starts from a model: its first loss is the model's.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "model/cpu/cpu_ops.h"
#include "model/io/sharded_safetensors.h"
#include "model/llama/load_weights.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/data/token_dataset.h"
#include "trainer/loop/prepare_job.h"
#include "trainer/loop/train_loop.h"

namespace cria::trainer {
namespace {

class TrainInitTest : public testing::Test {
 protected:
  // A trained model's folder of weights, and the job that made it.
  void SetUp() override {
    ASSERT_TRUE(RunTiny(config_, {.out_dir = JoinPath(dir_, "first")}).status.ok());
    weights_ = JoinPath(StepDir(JoinPath(dir_, "first"), config_.steps), "model.safetensors");
  }

  TrainConfig config_ = TinyConfig(TinyData());
  const std::string dir_ = FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name());
  std::string weights_;
};

TEST_F(TrainInitTest, TheFirstLossIsTheSourcesLossOnThatBatch) {
  const auto source = model::SafetensorsSource::Open(weights_);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto ops = model::cpu::NewCpuOps();
  const StatusOr<TokenDataset> train = TokenDataset::Open(config_.data.path, "train");
  const StatusOr<TokenDataset> val = TokenDataset::Open(config_.data.path, "val");
  ASSERT_TRUE(train.ok() && val.ok());
  config_.steps = 1;
  config_.seed = 99;  // other batches than those it was trained on
  TrainLoop loop(config_,
                 {.out_dir = JoinPath(dir_, "second"), .ops = ops.get(), .clock = RealClock()});
  ASSERT_TRUE(loop.Open(&*train, &*val).ok());
  ASSERT_TRUE(loop.Init(**source).ok());
  const auto summary = loop.Run();
  ASSERT_TRUE(summary.ok()) << summary.status();

  // The same batch through a model that only has the source's weights.
  model::Llama reference(config_.model, config_.LlamaOptions(), ops.get());
  ASSERT_TRUE(model::LoadWeights(**source, reference.layout(), reference.weights()).ok());
  reference.WeightsChanged();
  BatchStream stream(&*train, {.seq = config_.train.seq, .seed = 99, .shuffle = true});
  Batch batch;
  double sum = 0;
  int64_t valid = 0;
  for (int64_t row = 0; row < config_.train.batch; ++row) {
    stream.Read(row, 1, &batch);
    const auto view = [&](std::vector<int32_t>& x) {
      return model::Tensor(x.data(), model::DType::kI32, {config_.train.seq});
    };
    const model::LossSum loss = reference.Evaluate({.batch = 1,
                                                    .time = config_.train.seq,
                                                    .tokens = view(batch.tokens_BT),
                                                    .targets = view(batch.targets_BT),
                                                    .positions = view(batch.positions_BT),
                                                    .doc_start = view(batch.doc_start_BT)});
    sum += loss.sum;
    valid += loss.num_valid;
  }
  EXPECT_NEAR(summary->first_loss, sum / static_cast<double>(valid), 1e-6);
  // And that is a trained model's, far under the log of the vocabulary.
  EXPECT_LT(summary->first_loss, 5.3);
}

TEST_F(TrainInitTest, AModelOfOtherSizesIsRefused) {
  const auto source = model::SafetensorsSource::Open(weights_);
  ASSERT_TRUE(source.ok()) << source.status();
  const auto ops = model::cpu::NewCpuOps();
  config_.model.ffn *= 2;
  TrainLoop loop(config_, {.out_dir = dir_, .ops = ops.get(), .clock = RealClock()});
  const Status status = loop.Init(**source);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("mlp."), std::string::npos) << status;
}

TEST_F(TrainInitTest, TheModelSectionIsTheSourcesAndMustNotContradictIt) {
  const auto open = [&](const std::string& path) -> StatusOr<model::LlamaConfig> {
    EXPECT_EQ(path, "some model");
    return config_.model;
  };
  const std::string job = JoinPath(dir_, "job.yaml");
  ASSERT_TRUE(WriteFileAtomic(job, "init: some model\ntrain: {seq: 32}\n").ok());
  const auto plain = LoadTrainConfig(job, {}, open);
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE(CheckInitModel(plain->model, config_.model, "").ok());
  EXPECT_TRUE(LoadTrainConfig(job, {StrCat("model.layers=", config_.model.layers)}, open).ok());

  struct Wrong {
    const char* set;
    std::vector<std::string> said;
  };
  for (const Wrong& wrong :
       {Wrong{"model.layers=9", {"model.layers: 9", "some model", StrCat(config_.model.layers)}},
        Wrong{"model.rope_theta=77", {"model.rope_theta: 77"}},
        Wrong{"model.tied_head=false", {"model.tied_head: false", "true"}},
        Wrong{"model.preset=toy", {"model.", "some model"}},
        Wrong{"model.rope_scaling.type=linear", {"rope_scaling.type: linear", "default"}}}) {
    const Status status = LoadTrainConfig(job, {wrong.set}, open).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << wrong.set;
    for (const std::string& part : wrong.said) {
      EXPECT_NE(Message(status).find(part), std::string::npos) << part << " in " << status;
    }
  }
  // What a run writes down can be read without the source.
  const std::string resolved = WriteTrainConfig(*plain);
  EXPECT_NE(resolved.find("init: \"some model\"\n"), std::string::npos) << resolved;
  const auto again = ParseTrainConfig(resolved, "config.yaml");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->init, "some model");
  EXPECT_EQ(again->model.dim, config_.model.dim);
}

TEST_F(TrainInitTest, DataOfAnotherTokenizerIsRefused) {
  const StatusOr<Tokenizer> own = Tokenizer::Load(JoinPath(TinyData(), "tokenizer.json"));
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_TRUE(PrepareJob(config_, nullptr, nullptr, &*own).ok());
  TokenizerParts parts = own->parts();
  for (AddedToken& token : parts.added) {
    if (token.content == kEndOfText) token.special = false;
  }
  const StatusOr<Tokenizer> other = Tokenizer::FromParts(parts, "other");
  ASSERT_TRUE(other.ok()) << other.status();
  const Status status = PrepareJob(config_, nullptr, nullptr, &*other).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  for (const std::string& part : {own->Fingerprint(), other->Fingerprint(), config_.data.path}) {
    EXPECT_NE(Message(status).find(part), std::string::npos) << part << " in " << status;
  }
}

TEST_F(TrainInitTest, TextIsPreparedWithTheModelsTokenizer) {
  setenv("XDG_CACHE_HOME", JoinPath(dir_, "cache").c_str(), 1);
  const std::string text = JoinPath(dir_, "text.txt");
  ASSERT_TRUE(WriteFileAtomic(text, TinyText(100)).ok());
  const StatusOr<Tokenizer> own = Tokenizer::Load(JoinPath(TinyData(), "tokenizer.json"));
  ASSERT_TRUE(own.ok()) << own.status();
  config_.data.path = "";
  config_.data.inputs = {text};
  config_.data.vocab = 280;
  const auto with = PrepareJob(config_, nullptr, nullptr, &*own);
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(with->tokenizer.Fingerprint(), own->Fingerprint());
  const auto without = PrepareJob(config_, nullptr, nullptr);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_NE(without->dir, with->dir);
  EXPECT_EQ(without->tokenizer.vocab_size(), 280);
}

}  // namespace
}  // namespace cria::trainer
