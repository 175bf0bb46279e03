#include "base/config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"

namespace cria {
namespace {

struct Adam {
  double beta1 = 0.9;
  bool fused = true;
};

struct Train {
  double lr = 3e-4;
  int64_t steps = 100;
  std::string schedule = "cosine";
  std::string name = "toy";
  std::vector<int64_t> ramp = {1, 2};
  std::vector<std::string> files;
  std::vector<double> weights;
  Adam adam;
};

struct Job {
  int64_t seed = 7;
  Train train;
};

ConfigVisitor::Fields FieldsOf(Job& job) {
  return [&job](ConfigVisitor& v) {
    v.Field("seed", &job.seed);
    v.Section("train", [&job](ConfigVisitor& v) {
      Train& train = job.train;
      v.Field("lr", &train.lr, {.min = 0, .max = 1});
      v.Field("steps", &train.steps, {.min = 1});
      v.Choice("schedule", &train.schedule, {"cosine", "wsd"});
      v.Field("name", &train.name);
      v.Field("ramp", &train.ramp, {.min = 1});
      v.Field("files", &train.files);
      v.Field("weights", &train.weights);
      v.Section("adam", [&train](ConfigVisitor& v) {
        v.Field("beta1", &train.adam.beta1);
        v.Field("fused", &train.adam.fused);
      });
    });
  };
}

// The message of reading `text` (and overrides) into a Job, or "OK".
std::string ReadError(const std::string& text, const std::vector<std::string>& overrides = {}) {
  StatusOr<ConfigFile> file = ConfigFile::FromText(text, "job.yaml");
  if (!file.ok()) {
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
    return Message(file.status());
  }
  for (const std::string& assignment : overrides) {
    const Status status = file->Override(assignment);
    if (!status.ok()) return Message(status);
  }
  Job job;
  const Status status = file->Read(FieldsOf(job));
  if (status.ok()) return "OK";
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return Message(status);
}

TEST(ConfigTest, ReadsEveryKindAndKeepsDefaults) {
  const ConfigFile file = ConfigFile::FromText(R"(
seed: -3
train:
  lr: 1e-3
  steps: 1e6
  schedule: wsd
  name: "12"
  ramp: [4, 8]
  files:
    - a.txt
    - b c.txt
  weights: []
  adam: {fused: false}
)",
                                               "job.yaml")
                              .value();
  Job job;
  ASSERT_TRUE(file.Read(FieldsOf(job)).ok());
  EXPECT_EQ(job.seed, -3);
  EXPECT_EQ(job.train.lr, 1e-3);
  EXPECT_EQ(job.train.steps, 1'000'000);
  EXPECT_EQ(job.train.schedule, "wsd");
  EXPECT_EQ(job.train.name, "12");
  EXPECT_EQ(job.train.ramp, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(job.train.files, (std::vector<std::string>{"a.txt", "b c.txt"}));
  EXPECT_TRUE(job.train.weights.empty());
  EXPECT_EQ(job.train.adam.beta1, 0.9);
  EXPECT_FALSE(job.train.adam.fused);
}

TEST(ConfigTest, AnEmptyFileOrSectionMeansDefaults) {
  EXPECT_EQ(ReadError(""), "OK");
  EXPECT_EQ(ReadError("# only a comment\n"), "OK");
  EXPECT_EQ(ReadError("train:\n"), "OK");
}

TEST(ConfigTest, MistakesNameFileLineAndKey) {
  EXPECT_EQ(ReadError("seed: 1\ntrain:\n  lrr: 1\n"),
            "job.yaml:3: train.lrr: unknown key; did you mean \"lr\"?");
  EXPECT_EQ(ReadError("sed: 1\n"), "job.yaml:1: sed: unknown key; did you mean \"seed\"?");
  EXPECT_EQ(ReadError("\n\nwhatever: 1\n"), "job.yaml:3: whatever: unknown key");
  EXPECT_EQ(ReadError("train:\n  steps: ten\n"),
            "job.yaml:2: train.steps: expected an integer, got \"ten\"");
  EXPECT_EQ(ReadError("train:\n  steps: 1.5\n"),
            "job.yaml:2: train.steps: expected an integer, got \"1.5\"");
  EXPECT_EQ(ReadError("train:\n  steps: \"10\"\n"),
            "job.yaml:2: train.steps: expected an integer, got the string \"10\"");
  EXPECT_EQ(ReadError("seed: 99999999999999999999\n"),
            "job.yaml:1: seed: expected an integer, got \"99999999999999999999\"");
  EXPECT_EQ(ReadError("seed:\n"), "job.yaml:1: seed: expected an integer, got nothing");
  EXPECT_EQ(ReadError("train:\n  lr: .nan\n"),
            "job.yaml:2: train.lr: expected a number, got \".nan\"");
  EXPECT_EQ(ReadError("train:\n  lr: [1]\n"),
            "job.yaml:2: train.lr: expected a number, got a list");
  EXPECT_EQ(ReadError("train:\n  name: {a: 1}\n"),
            "job.yaml:2: train.name: expected a string, got a section");
  EXPECT_EQ(ReadError("train:\n  ramp: 3\n"), "job.yaml:2: train.ramp: expected a list, got \"3\"");
  EXPECT_EQ(ReadError("train:\n  ramp:\n    - 1\n    - x\n"),
            "job.yaml:4: train.ramp[1]: expected an integer, got \"x\"");
  EXPECT_EQ(ReadError("train:\n  adam:\n    fused: yes\n"),
            "job.yaml:3: train.adam.fused: expected true or false, got \"yes\"");
  EXPECT_EQ(ReadError("train: 3\n"), "job.yaml:1: train: expected a section, got \"3\"");
  EXPECT_EQ(ReadError("train:\n  schedule: cosin\n"),
            "job.yaml:2: train.schedule: expected one of cosine, wsd, got \"cosin\"");
}

TEST(ConfigTest, LimitsAreInclusiveAndNamed) {
  EXPECT_EQ(ReadError("train: {lr: 0, steps: 1}"), "OK");
  EXPECT_EQ(ReadError("train: {lr: 1}"), "OK");
  EXPECT_EQ(ReadError("train:\n  lr: 1.5\n"), "job.yaml:2: train.lr: 1.5 is out of range [0, 1]");
  EXPECT_EQ(ReadError("train:\n  steps: -4\n"),
            "job.yaml:2: train.steps: -4 is out of range [1, inf)");
  EXPECT_EQ(ReadError("train:\n  ramp: [1, 0]\n"),
            "job.yaml:2: train.ramp[1]: 0 is out of range [1, inf)");
}

TEST(ConfigTest, RequiredKeysAreMissedAfterUnknownOnesAreReported) {
  const auto read = [](const std::string& text) {
    int64_t layers = 0;
    double rate = 0;
    return Message(ConfigFile::FromText(text, "m.yaml")->Read([&](ConfigVisitor& v) {
      v.Section("model", [&](ConfigVisitor& v) { v.Field("layers", &layers, {.required = true}); });
      v.Field("rate", &rate, {.required = true});
    }));
  };
  EXPECT_EQ(read("rate: 1\nmodel: {layers: 2}\n"), "");
  EXPECT_EQ(read("rate: 1\nmodel:\n"), "m.yaml:2: model: the key \"layers\" is missing");
  EXPECT_EQ(read("rate: 1\n"), "m.yaml:1: model: the key \"layers\" is missing");
  EXPECT_EQ(read("model: {layers: 2}\n"), "m.yaml:1: the key \"rate\" is missing");
  EXPECT_EQ(read("rate: 1\nmodel: {layer: 2}\n"),
            "m.yaml:2: model.layer: unknown key; did you mean \"layers\"?");
  EXPECT_EQ(read("rat: 1\n"), "m.yaml:1: rat: unknown key; did you mean \"rate\"?");
}

TEST(ConfigTest, OverridesReplaceAddAndNameThemselves) {
  StatusOr<ConfigFile> file = ConfigFile::FromText("train: {lr: 0.5}\n", "job.yaml");
  ASSERT_TRUE(file->Override("train.lr=3e-2").ok());
  ASSERT_TRUE(file->Override("train.adam.fused=false").ok());
  ASSERT_TRUE(file->Override("train.ramp=[3, 5]").ok());
  ASSERT_TRUE(file->Override("train.name=a=b").ok());
  Job job;
  ASSERT_TRUE(file->Read(FieldsOf(job)).ok());
  EXPECT_EQ(job.train.lr, 3e-2);
  EXPECT_FALSE(job.train.adam.fused);
  EXPECT_EQ(job.train.ramp, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(job.train.name, "a=b");

  EXPECT_EQ(ReadError("", {"train.lr=3"}), "--set train.lr=3: train.lr: 3 is out of range [0, 1]");
  EXPECT_EQ(ReadError("", {"train.stpes=3"}),
            "--set train.stpes=3: train.stpes: unknown key; did you mean \"steps\"?");
  EXPECT_EQ(ReadError("", {"nonsense"}), "--set nonsense: expected KEY=VALUE");
  EXPECT_EQ(ReadError("", {"a..b=1"}), "--set a..b=1: a part of the key is empty");
  EXPECT_EQ(ReadError("seed: 1", {"seed.x=1"}),
            "--set seed.x=1: x is set inside \"1\" at job.yaml:1");
  EXPECT_EQ(ReadError("", {"seed=[1"}).rfind("--set seed=[1: not YAML: ", 0), 0u);
}

TEST(ConfigTest, BadYamlIsOneLineWithItsPlace) {
  EXPECT_EQ(ReadError("seed: 1\ntrain: [1\n").rfind("job.yaml:", 0), 0u);
  EXPECT_EQ(ReadError("- 1\n"), "job.yaml:1: expected \"key: value\" lines, got a list");
  EXPECT_EQ(ReadError("just text\n"),
            "job.yaml:1: expected \"key: value\" lines, got \"just text\"");
  EXPECT_EQ(ReadError("seed: 1\nseed: 2\n"),
            "job.yaml:2: seed: the key stands here again, first at job.yaml:1");
  EXPECT_EQ(ReadError("seed: 1\n---\nseed: 2\n"), "job.yaml: more than one YAML document");
  // A stray bracket is an endless row of documents to yaml-cpp 0.7.
  EXPECT_NE(ReadError(",  -   x]\nb\xfe\xff\xff\xed\n"), "OK");
  EXPECT_NE(ReadError("x]\n"), "OK");
  EXPECT_NE(ReadError("? [a]\n: 1\n"), "OK");
  EXPECT_NE(ReadError("seed: *nowhere\n"), "OK");
  EXPECT_NE(ReadError(std::string("\0\xff\xfe", 3)), "OK");
  EXPECT_NE(ReadError(std::string(100'000, '[')), "OK");
  EXPECT_NE(ReadError("seed: " + std::string(100, '[') + std::string(100, ']')), "OK");
}

// Each level is ten times the one below: 10^9 values from a few lines.
TEST(ConfigTest, AnAliasBombIsRefused) {
  std::string text = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    text += StrCat("a", i, ": &a", i, " [");
    for (int j = 0; j < 10; ++j) text += StrCat(j > 0 ? "," : "", "*a", i - 1);
    text += "]\n";
  }
  // As many as its bytes, and a thousand.
  EXPECT_NE(ReadError(text).find(StrCat("more than ", 1000 + text.size(), " values")),
            std::string::npos);
}

TEST(ConfigTest, WhatIsWrittenReadsBackEqual) {
  Job job;
  job.seed = INT64_MIN;
  job.train.lr = 0.1 + 0.2;
  job.train.steps = INT64_MAX;
  job.train.ramp = {};
  job.train.weights = {1e-300, -0.0, 3, 1e22};
  job.train.adam.fused = false;
  for (const std::string& text : std::vector<std::string>{"",
                                                          "plain",
                                                          "12",
                                                          "true",
                                                          "null",
                                                          "~",
                                                          "a: b",
                                                          "# no",
                                                          "\"quoted\\",
                                                          "tab\tline\n",
                                                          "caf\u00e9",
                                                          " led",
                                                          "[x]",
                                                          "{y}",
                                                          "- z",
                                                          "/some/path-1.txt",
                                                          "yes",
                                                          ".5",
                                                          "0x10",
                                                          "&a",
                                                          std::string("nul\0in", 6),
                                                          "\x7f"}) {
    job.train.name = text;
    job.train.files = {text, "second"};
    const std::string yaml = WriteConfig(FieldsOf(job));
    const StatusOr<ConfigFile> file = ConfigFile::FromText(yaml, "written");
    ASSERT_TRUE(file.ok()) << file.status() << "\n" << yaml;
    Job back;
    const Status status = file->Read(FieldsOf(back));
    ASSERT_TRUE(status.ok()) << status << "\n" << yaml;
    EXPECT_EQ(back.train.name, text) << yaml;
    EXPECT_EQ(back.train.files, job.train.files);
    EXPECT_EQ(back.seed, job.seed);
    EXPECT_EQ(back.train.lr, job.train.lr);
    EXPECT_EQ(back.train.steps, job.train.steps);
    EXPECT_EQ(back.train.ramp, job.train.ramp);
    EXPECT_EQ(back.train.weights, job.train.weights);
    EXPECT_EQ(back.train.adam.fused, false);
    EXPECT_EQ(WriteConfig(FieldsOf(back)), yaml);
  }
}

TEST(ConfigTest, WritesReadableYaml) {
  Job job;
  EXPECT_EQ(WriteConfig(FieldsOf(job)), R"(seed: 7
train:
  lr: 0.0003
  steps: 100
  schedule: cosine
  name: toy
  ramp: [1, 2]
  files: []
  weights: []
  adam:
    beta1: 0.9
    fused: true
)");
}

TEST(ConfigTest, HasAndGetStringTakeDottedKeys) {
  const std::string path = JoinPath(testing::TempDir(), "job.yaml");
  ASSERT_TRUE(WriteFileAtomic(path, "model:\n  preset: 1m\n").ok());
  const ConfigFile file = ConfigFile::FromFile(path).value();
  EXPECT_TRUE(file.Has("model"));
  EXPECT_TRUE(file.Has("model.preset"));
  EXPECT_FALSE(file.Has("model.preset.x"));
  EXPECT_FALSE(file.Has("models"));
  EXPECT_EQ(file.GetString("model.preset").value(), "1m");
  EXPECT_EQ(file.GetString("model").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file.GetString("x.y").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ConfigFile::FromFile(path + ".none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace cria
