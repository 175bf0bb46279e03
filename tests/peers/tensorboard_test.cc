// TensorBoard's own reader on our event files.

#include "trainer/metrics/tensorboard.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/peers/peer_python.h"

namespace cria::trainer {
namespace {

std::string TempFolder(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = JoinPath(folder != nullptr ? folder : "/tmp", name);
  (void)RemoveAll(path);
  return path;
}

void WriteSteps(const std::string& folder, int64_t last_step, int64_t until, double scale,
                Clock* clock) {
  const auto writer = TensorBoardWriter::Create(folder, last_step, clock);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (int64_t step = last_step + 1; step <= until; ++step) {
    const double loss = scale * static_cast<double>(step);
    ASSERT_TRUE((*writer)->Scalars(step, {{"train/loss", loss}, {"train/lr", 0.5}}).ok());
  }
}

TEST(TensorBoardPeerTest, ReadsEveryScalar) {
  const std::string folder = TempFolder("run");
  FakeClock clock;
  WriteSteps(folder, 0, 300, 0.25, &clock);
  const auto out = RunPeer("tests/peers/tensorboard_peer.py", {folder});
  if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
  ASSERT_TRUE(out.ok()) << out.status();
  const auto read = ParseJson(*out, "tensorboard");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->at("file_version"), 2.0);
  EXPECT_EQ(read->at("scalars").size(), 2u);
  const Json& loss = read->at("scalars").at("train/loss");
  ASSERT_EQ(loss.size(), 300u);
  for (int64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(loss[static_cast<size_t>(i)][0], i + 1);
    EXPECT_EQ(loss[static_cast<size_t>(i)][1], 0.25 * static_cast<double>(i + 1));
  }
}

// A run killed after step 8 and resumed from step 5: each step once, 6 to 8 from the second life.
TEST(TensorBoardPeerTest, SeesEachStepOnceAfterAResume) {
  const std::string folder = TempFolder("resumed");
  FakeClock clock;
  WriteSteps(folder, 0, 8, 1.0, &clock);
  clock.Advance(60);
  WriteSteps(folder, 5, 10, 2.0, &clock);
  const auto out = RunPeer("tests/peers/tensorboard_peer.py", {folder});
  if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
  ASSERT_TRUE(out.ok()) << out.status();
  const auto read = ParseJson(*out, "tensorboard");
  ASSERT_TRUE(read.ok()) << read.status();
  const Json& loss = read->at("scalars").at("train/loss");
  ASSERT_EQ(loss.size(), 10u);
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(loss[static_cast<size_t>(i)][0], i + 1);
    EXPECT_EQ(loss[static_cast<size_t>(i)][1], (i < 5 ? 1.0 : 2.0) * static_cast<double>(i + 1));
  }
}

}  // namespace
}  // namespace cria::trainer
