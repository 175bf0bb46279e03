#include "trainer/loop/resume_checks.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/support/process.h"

namespace cria::trainer {
namespace {

TEST(CheckSameModelTest, ComparesTheModelSectionAlone) {
  const std::string a =
      "seed: 1\nmodel:\n  layers: 2\n  rope_scaling:\n    factor: 8\ndata:\n  x: 1\n";
  const std::string b =
      "seed: 2\nmodel:\n  layers: 2\n  rope_scaling:\n    factor: 8\ndata:\n  x: 2\n";
  EXPECT_TRUE(CheckSameModel(a, b, "ckpt").ok());
  const std::string c = "model:\n  layers: 2\n  rope_scaling:\n    factor: 32\n";
  EXPECT_EQ(Message(CheckSameModel(a, c, "ckpt")),
            "ckpt: its model has \"factor: 8\", the job's \"factor: 32\"");
  EXPECT_EQ(Message(CheckSameModel(a, "model:\n  layers: 2\n", "ckpt")),
            "ckpt: its model has \"rope_scaling:\", the job's \"nothing\"");
  EXPECT_FALSE(CheckSameModel("", a, "ckpt").ok());
}

TEST(DataFingerprintTest, ChangesWithWhatTheStreamReads) {
  Manifest manifest;
  manifest.tokenizer_fingerprint = "aa";
  manifest.train.shards = {{.file = "train_000000.bin", .num_tokens = 5, .hash = "h"}};
  const int64_t fingerprint = DataFingerprint(manifest, true);
  EXPECT_EQ(DataFingerprint(manifest, true), fingerprint);
  EXPECT_GE(fingerprint, 0);
  EXPECT_LT(fingerprint, int64_t{1} << 53);
  EXPECT_NE(DataFingerprint(manifest, false), fingerprint);
  Manifest other = manifest;
  other.train.shards[0].hash = "i";
  EXPECT_NE(DataFingerprint(other, true), fingerprint);
  other = manifest;
  other.tokenizer_fingerprint = "ab";
  EXPECT_NE(DataFingerprint(other, true), fingerprint);
  // Where it lies and how its validation split looks does not matter.
  other = manifest;
  other.source = "elsewhere";
  other.val.num_tokens = 77;
  EXPECT_EQ(DataFingerprint(other, true), fingerprint);
}

TEST(SetAsideNewerCheckpointsTest, MovesOnlyLaterSteps) {
  const std::string out = FreshDir("aside");
  EXPECT_TRUE(SetAsideNewerCheckpoints(out, 5).ok());  // nothing there yet
  const std::string checkpoints = JoinPath(out, "checkpoints");
  for (const char* name : {"step_4", "step_5", "step_6", "step_10.old", "step_x", "step_7.tmp-1-0",
                           "step_", "notes"}) {
    ASSERT_TRUE(MakeDirs(JoinPath(checkpoints, name)).ok());
  }
  ASSERT_TRUE(SetAsideNewerCheckpoints(out, 5).ok());
  EXPECT_EQ(
      ListDir(checkpoints).value(),
      (std::vector<std::string>{"notes", "step_", "step_4", "step_5", "step_7.tmp-1-0", "step_x"}));
  EXPECT_EQ(ListDir(JoinPath(out, "checkpoints_replaced")).value(),
            (std::vector<std::string>{"step_10.old", "step_6"}));
}

}  // namespace
}  // namespace cria::trainer
