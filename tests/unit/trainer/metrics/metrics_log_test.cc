#include "trainer/metrics/metrics_log.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace cria::trainer {
namespace {

std::string TempPath(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = JoinPath(folder != nullptr ? folder : "/tmp", name);
  (void)RemoveAll(path);
  return path;
}

StepMetrics At(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.steps = 100;
  metrics.tokens = step * 2048;
  metrics.loss = 10.0 / static_cast<double>(step + 1);
  metrics.lr = 3e-4;
  metrics.grad_norm = 1.5;
  metrics.tokens_per_s = 9000;
  metrics.mfu = 0.4;
  return metrics;
}

void AppendSteps(MetricsLog* log, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) ASSERT_TRUE(log->Append(At(step)).ok());
}

std::vector<int64_t> StepsIn(const std::string& path) {
  std::vector<int64_t> steps;
  const std::string text = *ReadFile(path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_NE(end, std::string::npos) << "the last line is torn";
    if (end == std::string::npos) break;
    const auto json = ParseJson(text.substr(begin, end - begin), path);
    EXPECT_TRUE(json.ok()) << json.status();
    steps.push_back(*JsonGet<int64_t>(*json, "step", path));
    begin = end + 1;
  }
  return steps;
}

TEST(FormatMetricsLineTest, HasTheAgreedKeysAndExactValues) {
  StepMetrics metrics = At(7);
  metrics.loss = 0.1 + 0.2;
  metrics.val_loss = 2.5;
  EXPECT_EQ(FormatMetricsLine(metrics),
            "{\"step\":7,\"tokens\":14336,\"loss\":0.30000000000000004,\"lr\":3e-04,"
            "\"grad_norm\":1.5,\"tokens_per_s\":9000,\"mfu\":0.4,\"val_loss\":2.5}");
  metrics.comm_share = 0.25;
  metrics.comm_overlap = 0.75;
  EXPECT_NE(FormatMetricsLine(metrics).find(
                "\"mfu\":0.4,\"comm_share\":0.25,\"comm_overlap\":0.75,\"val_loss\":2.5}"),
            std::string::npos);
  metrics.val_loss.reset();
  EXPECT_EQ(FormatMetricsLine(metrics).find("val_loss"), std::string::npos);
}

TEST(FormatMetricsLineTest, IsValidJsonWithNullsForWhatIsNotFinite) {
  StepMetrics metrics = At(7);
  metrics.loss = std::nan("");
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  metrics.lr = 1e-30;
  metrics.tokens_per_s = 1e300;
  metrics.val_loss = -std::numeric_limits<double>::infinity();
  const auto json = ParseJson(FormatMetricsLine(metrics), "line");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_TRUE(json->at("loss").is_null());
  EXPECT_TRUE(json->at("grad_norm").is_null());
  EXPECT_TRUE(json->at("val_loss").is_null());
  EXPECT_EQ(json->at("lr"), 1e-30);
  EXPECT_EQ(json->at("tokens_per_s"), 1e300);
}

TEST(MetricsLogTest, ResumeCutsLaterStepsSoThatNoneAppearsTwice) {
  const std::string path = TempPath("resume.jsonl");
  AppendSteps(MetricsLog::Open(path, 0)->get(), 1, 9);
  const std::string whole = *ReadFile(path);
  auto log = MetricsLog::Open(path, 6);
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(StepsIn(path), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  AppendSteps(log->get(), 7, 9);
  ASSERT_TRUE((*log)->Sync().ok());
  EXPECT_EQ(*ReadFile(path), whole);
}

TEST(MetricsLogTest, StartsAnewForAFreshRunAndKeepsAllWhenNothingIsLater) {
  const std::string path = TempPath("fresh.jsonl");
  AppendSteps(MetricsLog::Open(path, 0)->get(), 1, 3);
  ASSERT_TRUE(MetricsLog::Open(path, 50).ok());
  EXPECT_EQ(StepsIn(path).size(), 3u);
  ASSERT_TRUE(MetricsLog::Open(path, 0).ok());
  EXPECT_EQ(*ReadFile(path), "");
}

TEST(MetricsLogTest, DropsTheTornLineOfAKilledRunWhereverItWasCut) {
  const std::string path = TempPath("torn.jsonl");
  AppendSteps(MetricsLog::Open(path, 0)->get(), 1, 3);
  const std::string whole = *ReadFile(path);
  const size_t two_lines = whole.find('\n', whole.find('\n') + 1) + 1;
  for (size_t size = two_lines; size < whole.size(); ++size) {
    ASSERT_TRUE(WriteFileAtomic(path, whole.substr(0, size)).ok());
    const auto log = MetricsLog::Open(path, 2);
    ASSERT_TRUE(log.ok()) << log.status();
    AppendSteps(log->get(), 3, 3);
    ASSERT_EQ(*ReadFile(path), whole) << size;
  }
  // After a power loss the tail may be zeros, or lines of anything.
  for (const std::string& tail :
       {std::string(5000, '\0'), std::string("\0\n\0\n", 4), std::string("x\n{}\n")}) {
    ASSERT_TRUE(WriteFileAtomic(path, whole.substr(0, two_lines) + tail).ok());
    ASSERT_TRUE(MetricsLog::Open(path, 3).ok());
    EXPECT_EQ(*ReadFile(path), whole.substr(0, two_lines));
  }
}

TEST(MetricsLogTest, NamesTheLineWhenTheKeptPartIsDamagedAndTouchesNothing) {
  const std::string path = TempPath("damaged.jsonl");
  for (const char* bad : {"garbage", "{}", "{\"step\":\"2\"}", "[1]", "", "{\"step\":1}"}) {
    const std::string text = StrCat("{\"step\":1}\n", bad, "\n{\"step\":3}\n");
    ASSERT_TRUE(WriteFileAtomic(path, text).ok());
    const auto log = MetricsLog::Open(path, 3);
    ASSERT_FALSE(log.ok()) << bad;
    EXPECT_EQ(log.status().code(), StatusCode::kDataLoss);
    EXPECT_TRUE(Message(log.status()).starts_with(path + ":2: ")) << log.status();
    EXPECT_EQ(*ReadFile(path), text);
    // When the damage lies behind the resumed step, it is cut off with the rest.
    ASSERT_TRUE(MetricsLog::Open(path, 2).ok());
    EXPECT_EQ(StepsIn(path), std::vector<int64_t>{1});
  }
}

TEST(MetricsLogTest, FailsWithThePathWhenItCannotOpen) {
  const std::string path = TempPath("absent/metrics.jsonl");
  const auto log = MetricsLog::Open(path, 0);
  EXPECT_EQ(log.status().code(), StatusCode::kNotFound);
  EXPECT_NE(Message(log.status()).find(path), std::string::npos) << log.status();
}

TEST(MetricsLogTest, LeavesWholeLinesWhenTheDiskFillsAndGoesOnAfterwards) {
  const std::string path = TempPath("full.jsonl");
  auto log = MetricsLog::Open(path, 0);
  ASSERT_TRUE(log.ok());
  AppendSteps(log->get(), 1, 2);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit low{*FileSize(path) + 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const Status status = (*log)->Append(At(3));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(Message(status).find(StrCat("write step 3 to ", path)), std::string::npos) << status;
  EXPECT_EQ(StepsIn(path), (std::vector<int64_t>{1, 2}));
  AppendSteps(log->get(), 4, 4);
  EXPECT_EQ(StepsIn(path), (std::vector<int64_t>{1, 2, 4}));
}

}  // namespace
}  // namespace cria::trainer
