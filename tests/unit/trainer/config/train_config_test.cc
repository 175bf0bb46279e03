#include "trainer/config/train_config.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "tests/support/process.h"

namespace cria::trainer {
namespace {

class TrainConfigTest : public testing::Test {
 protected:
  std::string Write(const std::string& text) {
    const std::string path = JoinPath(dir_, "job.yaml");
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    return path;
  }
  // The message of a file that must be refused, without the folder.
  std::string Error(const std::string& text, const std::vector<std::string>& overrides = {}) {
    const StatusOr<TrainConfig> config = LoadTrainConfig(Write(text), overrides);
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << config.status();
    EXPECT_EQ(ExitCode(config.status()), 2);
    std::string message = Message(config.status());
    EXPECT_EQ(message.find('\n'), std::string::npos) << "one line: " << message;
    const size_t at = message.find(dir_ + "/");
    if (at != std::string::npos) message.erase(at, dir_.size() + 1);
    return message;
  }

  const std::string dir_ = FreshDir(testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(TrainConfigTest, NamesFileLineAndKeyOfAMistake) {
  EXPECT_EQ(Error("seed: 1\ntrain:\n  lrr: 3\n"),
            "job.yaml:3: train.lrr: unknown key; did you mean \"lr\"?");
  EXPECT_EQ(Error("seeed: 1\n"), "job.yaml:1: seeed: unknown key; did you mean \"seed\"?");
  EXPECT_EQ(Error("model:\n  dim: -8\n"), "job.yaml:2: model.dim: -8 is out of range [2, 1048576]");
  EXPECT_EQ(Error("model: {layers: 0}\n"), "job.yaml:1: model.layers: 0 is out of range [1, 1024]");
  EXPECT_EQ(Error("steps: ten\n"), "job.yaml:1: steps: expected an integer, got \"ten\"");
  EXPECT_EQ(Error("train:\n  batch: 1.5\n"),
            "job.yaml:2: train.batch: expected an integer, got \"1.5\"");
  EXPECT_EQ(Error("train:\n  beta2: 1\n"),
            "job.yaml:2: train.beta2: 1 is out of range [0, 0.9999999]");
  EXPECT_NE(Error("precision: fp4\n").find("job.yaml:1: precision: "), std::string::npos);
  EXPECT_NE(Error("train:\n  schedule: linear\n").find("job.yaml:2: train.schedule: "),
            std::string::npos);
  EXPECT_NE(Error("train: 3\n").find("job.yaml:1: train: "), std::string::npos);
  EXPECT_NE(Error("train: [\n").find("job.yaml:"), std::string::npos);
  EXPECT_EQ(Error("seed: 1\n", {"train.lr=11"}),
            "--set train.lr=11: train.lr: 11 is out of range [0, 10]");
  EXPECT_NE(Error("seed: 1\n", {"train.lr"}).find("train.lr"), std::string::npos);
}

TEST_F(TrainConfigTest, NamesWhatDoesNotFitTogether) {
  EXPECT_NE(Error("model: {dim: 96, heads: 5, kv_heads: 5}\n").find("heads"), std::string::npos);
  EXPECT_NE(Error("model: {dim: 96, heads: 6, kv_heads: 4}\n").find("kv_heads"), std::string::npos);
  EXPECT_EQ(Error("model: {max_positions: 128}\ntrain: {seq: 256}\n"),
            "job.yaml: train.seq: 256 is over model.max_positions 128");
  EXPECT_EQ(Error("train: {ramp_batch: [1, 2], ramp_until: [5]}\n"),
            "job.yaml: train.ramp_batch has 2 stages, train.ramp_until 1");
  EXPECT_EQ(Error("train: {ramp_batch: [1, 2], ramp_until: [5, 5]}\n"),
            "job.yaml: train.ramp_until: the steps must ascend");
}

TEST_F(TrainConfigTest, AMissingFileIsNamedWithWhatWasTried) {
  const StatusOr<TrainConfig> config = LoadTrainConfig("no_such_job", {});
  EXPECT_EQ(config.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(config.status()),
            "config 'no_such_job': no such file, and no configs/jobs/no_such_job.yaml");
  const std::string job = Write("model: {preset: huge}\n");
  EXPECT_EQ(Message(LoadTrainConfig(job, {}).status()),
            StrCat(job, ": model.preset: config 'huge': no such file, and no ",
                   "configs/models/huge.yaml"));
}

TEST_F(TrainConfigTest, APresetGivesDefaultsThatTheFileAndTheFlagsOverride) {
  const std::string path = Write("model: {preset: toy, layers: 9}\ntrain: {lr: 0.25}\n");
  const TrainConfig toy = LoadTrainConfig(Write("model: {preset: toy}\n"), {}).value();
  const TrainConfig config =
      LoadTrainConfig(Write("model: {preset: toy, layers: 9}\ntrain: {lr: 0.25}\n"),
                      {"model.ffn=640", "train.beta1=0.5", "sample.prompts=[a, b]"})
          .value();
  EXPECT_EQ(config.model.layers, 9);
  EXPECT_EQ(config.model.ffn, 640);
  EXPECT_EQ(config.model.dim, toy.model.dim);
  EXPECT_EQ(config.train.lr, 0.25);
  EXPECT_EQ(config.train.beta1, 0.5);
  EXPECT_EQ(config.sample.prompts, (std::vector<std::string>{"a", "b"}));
  // Later flags win.
  EXPECT_EQ(LoadTrainConfig(path, {"steps=5", "steps=7", "train.warmup=1"})->steps, 7);
  // An override may name the preset itself.
  EXPECT_EQ(LoadTrainConfig(Write("seed: 1\n"), {"model.preset=1m"})->model.dim, 128);
}

TEST_F(TrainConfigTest, WritingAndReadingGivesAnEqualConfiguration) {
  TrainConfig config = LoadTrainConfig(Write("model: {preset: llama32_1b}\n"), {}).value();
  config.precision = "fp8_tensorwise";
  config.seed = 9'007'199'254'740'993;  // over 2^53
  config.steps = 123;
  config.data.inputs = {"a b", "c: d", "# e", ""};
  config.data.field = "text: \"quoted\"";
  config.data.val_fraction = 0.1 + 0.2;
  config.train.ramp_batch = {1, 2};
  config.train.ramp_until = {3, 4};
  config.train.lr = 1.0 / 3;
  config.train.eps = 1e-30;
  config.train.warmup = 7;
  config.train.seq = 512;
  config.train.schedule = "wsd";
  config.checkpoint = {.every = 11, .keep = 0};
  config.sample.prompts = {"line\nbreak", "ünï", "true", "1e3", "null", "~"};
  config.tensorboard = false;
  config.train.token_grain = 8;
  config.parallel = {.tp = 4,
                     .cp = 2,
                     .pp = 3,
                     .dp = 5,
                     .shard = "weights",
                     .pp_chunks = 2,
                     .pp_group = 7,
                     .pp_short_ends = true,
                     .fp8_gather = true};
  const std::string text = WriteTrainConfig(config);
  const StatusOr<TrainConfig> again = LoadTrainConfig(Write(text), {});
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << text;
  EXPECT_EQ(WriteTrainConfig(*again), text);
  EXPECT_EQ(again->seed, config.seed);
  EXPECT_EQ(again->data.inputs, config.data.inputs);
  EXPECT_EQ(again->data.field, config.data.field);
  EXPECT_EQ(again->data.val_fraction, config.data.val_fraction);
  EXPECT_EQ(again->train.lr, config.train.lr);
  EXPECT_EQ(again->train.ramp_until, config.train.ramp_until);
  EXPECT_EQ(again->sample.prompts, config.sample.prompts);
  EXPECT_EQ(again->model.rope_scaling.factor, 32);
  EXPECT_EQ(again->model.rope_theta, 500000);
  EXPECT_EQ(again->checkpoint.keep, 0);
  EXPECT_FALSE(again->tensorboard);
  EXPECT_EQ(again->train.token_grain, 8);
  EXPECT_EQ(again->Layout(), config.Layout());
  EXPECT_EQ(again->Layout(), (model::Layout{.tp = 4,
                                            .cp = 2,
                                            .pp = 3,
                                            .dp = 5,
                                            .shard = model::Shard::kWeights,
                                            .pp_chunks = 2,
                                            .pp_group = 7,
                                            .pp_short_ends = true}));
  EXPECT_TRUE(again->parallel.fp8_gather);
}

TEST_F(TrainConfigTest, OneRankIsTheDefault) {
  const TrainConfig config = LoadTrainConfig(Write("seed: 1\n"), {}).value();
  EXPECT_EQ(config.Layout(), model::Layout{});
  EXPECT_FALSE(config.invariant());
  // The configuration of a run says nothing about dp where the job didn't.
  EXPECT_NE(WriteTrainConfig(config).find("dp: 0"), std::string::npos);
}

TEST_F(TrainConfigTest, AnImpossibleLayoutIsAnErrorAtLoad) {
  const std::string model = "model: {layers: 4, dim: 64, heads: 4, kv_heads: 2, ffn: 96}\n";
  const auto error = [&](const std::string& parallel) {
    return Error(model + "parallel: " + parallel + "\n");
  };
  EXPECT_EQ(error("{tp: 3}"), "job.yaml: parallel.tp: 3 ranks can't share 4 heads equally");
  EXPECT_EQ(error("{pp: 5}"),
            "job.yaml: parallel.pp: 4 layers are too few for 5 stages (pp 5 x pp_chunks 1)");
  EXPECT_EQ(error("{tp: 0}"), "job.yaml:2: parallel.tp: 0 is out of range [1, 1048576]");
  EXPECT_EQ(error("{cp: 3}"),
            "job.yaml: parallel.cp: 3 ranks can't cut a sequence of 256 tokens into 6 equal "
            "chunks");
  EXPECT_NE(error("{shard: all}").find("job.yaml:2: parallel.shard: "), std::string::npos);
  EXPECT_EQ(error("{tpp: 2}"), "job.yaml:2: parallel.tpp: unknown key; did you mean \"tp\"?");
  EXPECT_EQ(error("{shard: weights, fp8_gather: true}"),
            "job.yaml: parallel.fp8_gather needs precision fp8_tensorwise, whose weights have one "
            "scale; it is fp32");
  // By --set as well.
  EXPECT_EQ(Error(model, {"parallel.tp=8"}),
            "job.yaml: parallel.tp: 8 ranks can't share 4 heads equally");
}

TEST_F(TrainConfigTest, InvariantNumericsNeedFp32AndWholeGrains) {
  const std::string invariant = "numerics: invariant\n";
  const auto load = [&](const std::string& text) {
    return LoadTrainConfig(Write(invariant + text), {}).value();
  };
  EXPECT_TRUE(load("seed: 1\n").invariant());
  EXPECT_EQ(load("seed: 1\n").TokenGrain(), 16);  // 256 / 16
  EXPECT_EQ(load("train: {seq: 9}\n").TokenGrain(), 1);
  EXPECT_EQ(load("train: {token_grain: 64}\n").TokenGrain(), 64);
  EXPECT_EQ(Error(invariant + "precision: bf16\n"),
            "job.yaml: numerics: invariant needs precision fp32, not bf16");
  EXPECT_EQ(Error(invariant + "train: {seq: 100}\n"),
            "job.yaml: train.token_grain: 6 does not divide the 100 tokens of a sequence");
  EXPECT_EQ(Error(invariant + "train: {token_grain: 64}\nparallel: {cp: 4}\n"),
            "job.yaml: train.token_grain: 64 does not divide the 32 tokens of a "
            "context-parallel chunk");
  EXPECT_EQ(Error(invariant + "train: {token_grain: 128}\nparallel: {tp: 6}\n"),
            "job.yaml: parallel.tp: 6 ranks can't share the 256 rows of a sequence equally");
  EXPECT_EQ(Error(invariant + "train: {token_grain: 128, seq: 384}\nparallel: {tp: 6}\n"),
            "job.yaml: train.token_grain: 128 does not divide the 64 rows of a sequence on one "
            "rank");
  // Without it a grain is nobody's concern.
  EXPECT_TRUE(LoadTrainConfig(Write("train: {token_grain: 7}\n"), {}).ok());
}

TEST_F(TrainConfigTest, TheWorldDecidesWhatTheJobLeavesOpen) {
  const std::string path = Write("model: {layers: 6, heads: 6, kv_heads: 6, dim: 48}\n");
  const auto resolve = [&](const std::vector<std::string>& overrides, int world_size) {
    return ResolveLayout(LoadTrainConfig(path, overrides).value(), world_size);
  };
  EXPECT_EQ(resolve({}, 1).value(), model::Layout{});
  EXPECT_EQ(resolve({}, 6)->dp, 6);
  EXPECT_EQ(resolve({"parallel.tp=2"}, 6)->dp, 3);
  EXPECT_EQ(resolve({"parallel.tp=2", "parallel.dp=3"}, 6)->dp, 3);
  EXPECT_EQ(Message(resolve({"parallel.tp=2", "parallel.pp=2"}, 6).status()),
            "parallel: tp 2 x cp 1 x pp 2 = 4 ranks don't divide the job's 6");
  EXPECT_EQ(Message(resolve({"parallel.tp=2", "parallel.dp=2"}, 6).status()),
            "parallel: tp 2 x cp 1 x pp 1 x dp 2 = 4 ranks are not the job's 6");
  EXPECT_EQ(Message(resolve({"parallel.tp=2"}, 1).status()),
            "parallel: tp 2 x cp 1 x pp 1 = 2 ranks don't divide the job's 1");
}

TEST_F(TrainConfigTest, EveryFileInConfigsLoadsAndIsDescribed) {
  int num_jobs = 0, num_models = 0;
  const std::vector<std::string> jobs = ListDir("configs/jobs").value();
  const std::vector<std::string> models = ListDir("configs/models").value();
  for (const std::string& name : jobs) {
    const StatusOr<TrainConfig> config = LoadTrainConfig(name, {});
    EXPECT_TRUE(config.ok()) << config.status();
    ++num_jobs;
  }
  for (const std::string& name : models) {
    const std::string preset = name.substr(0, name.find(".yaml"));
    const StatusOr<TrainConfig> config =
        LoadTrainConfig(Write("seed: 1\n"), {StrCat("model.preset=", preset), "train.seq=32"});
    EXPECT_TRUE(config.ok()) << config.status();
    ++num_models;
    const std::string text = ReadFile(JoinPath("configs/models", name)).value();
    EXPECT_EQ(text[0], '#') << name << " must say what it is";
  }
  EXPECT_GE(num_jobs, 4);
  EXPECT_GE(num_models, 8);
}

// `cria train --steps 3` is a first look at any job.
TEST_F(TrainConfigTest, ARunMayEndInsideItsWarmup) {
  const TrainConfig config =
      LoadTrainConfig(Write("steps: 500\ntrain: {warmup: 40, lr: 1.0}\n"), {"steps=3"}).value();
  EXPECT_EQ(LearningRate(config.LearningRate(), 3), 3.0 / 40);
}

// What config.h promises to others by name.
TEST_F(TrainConfigTest, FixedKeysExist) {
  for (const char* assignment : {"precision=bf16",     "seed=2",
                                 "steps=500",          "model.layers=2",
                                 "model.heads=2",      "model.kv_heads=2",
                                 "data.path=x",        "data.inputs=[a]",
                                 "train.batch=2",      "train.micro_batch=1",
                                 "train.seq=64",       "train.lr=1e-3",
                                 "train.warmup=1",     "parallel.tp=2",
                                 "parallel.cp=2",      "parallel.pp=2",
                                 "parallel.dp=2",      "parallel.shard=weights",
                                 "numerics=invariant", "checkpoint.every=3",
                                 "checkpoint.keep=4"}) {
    const StatusOr<TrainConfig> config =
        LoadTrainConfig(Write("model: {dim: 64, heads: 2, kv_heads: 2}\n"), {assignment});
    EXPECT_TRUE(config.ok()) << assignment << ": " << config.status();
  }
}

TEST_F(TrainConfigTest, TheModelHoldsTheLargestMicroBatchOfARamp) {
  TrainConfig config = LoadTrainConfig(Write("seed: 1\n"), {}).value();
  config.train.batch = 4;
  config.train.micro_batch = 8;
  EXPECT_EQ(config.LlamaOptions().max_batch, 4);
  config.train.ramp_batch = {6};
  config.train.ramp_until = {3};
  EXPECT_EQ(config.LlamaOptions().max_batch, 6);
  config.train.ramp_batch = {60};
  EXPECT_EQ(config.LlamaOptions().max_batch, 8);
}

}  // namespace
}  // namespace cria::trainer
