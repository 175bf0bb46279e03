// Limits by precision, verdicts, lines and JSON.

#include "trainer/check/layouts_report.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/json.h"

namespace cria::trainer {
namespace {

using model::Precision;

TEST(LayoutsReportTest, LimitsByPrecision) {
  EXPECT_EQ(LimitsOf(Precision::kFp32, false).relative, 1e-6);
  EXPECT_FALSE(LimitsOf(Precision::kFp32, false).bit_equal);
  EXPECT_EQ(LimitsOf(Precision::kFp32, false).gradients, 1e-6);
  EXPECT_EQ(LimitsOf(Precision::kBf16, false).relative, 2e-3);
  EXPECT_TRUE(LimitsOf(Precision::kFp32, true).bit_equal);
}

TEST(LayoutsReportTest, EachDifferenceIsJudged) {
  const LayoutLimits limits = {.relative = 1e-6, .gradients = 1e-5};
  EXPECT_EQ(JudgeDifference({.loss = 1e-6, .bit_equal = false}, limits), "");
  EXPECT_NE(JudgeDifference({.loss = 2e-6}, limits).find("loss"), std::string::npos);
  EXPECT_NE(JudgeDifference({.grad_norm = 1}, limits).find("grad-norm"), std::string::npos);
  const std::string weights = JudgeDifference({.weights = 1, .worst_tensor = "w.q"}, limits);
  EXPECT_NE(weights.find("w.q"), std::string::npos);
  EXPECT_EQ(JudgeDifference({.gradients = 9e-6}, limits), "");
  const std::string gradients =
      JudgeDifference({.gradients = 2e-5, .worst_gradient = "w.k"}, limits);
  EXPECT_NE(gradients.find("first gradient of w.k"), std::string::npos);
  EXPECT_NE(JudgeDifference({.loss = std::numeric_limits<double>::quiet_NaN()}, limits), "");
  EXPECT_NE(JudgeDifference({.bit_equal = false}, {.bit_equal = true}), "");
  EXPECT_EQ(JudgeDifference({}, {.bit_equal = true}), "");
}

std::vector<LayoutRow> Rows() {
  return {
      {.layout = {.tp = 2}, .difference = {.loss = 1e-7, .gradients = 3e-7, .bit_equal = false}},
      {.layout = {.dp = 2}, .difference = {}},
      {.layout = {.pp = 2},
       .difference = {.loss = std::numeric_limits<double>::infinity(), .bit_equal = false},
       .problem = "a loss differs"}};
}

TEST(LayoutsReportTest, LinesSayWhatHeld) {
  EXPECT_NE(FormatRow(Rows()[0]).find("tp2 "), std::string::npos);
  EXPECT_NE(FormatRow(Rows()[0]).find("1.0e-07"), std::string::npos);
  EXPECT_EQ(FormatRow(Rows()[0]).find("bit-equal"), std::string::npos);
  EXPECT_NE(FormatRow(Rows()[1]).find("ok, bit-equal"), std::string::npos);
  EXPECT_NE(FormatRow(Rows()[2]).find("FAILED: a loss differs"), std::string::npos);
  const std::string summary = FormatSummary(Rows(), {.relative = 1e-6});
  EXPECT_NE(summary.find("3 layouts, 1 failed, 1 bit-equal to one rank; limit 1e-06"),
            std::string::npos)
      << summary;
  EXPECT_NE(summary.find("loss inf (pp2)"), std::string::npos) << summary;
}

TEST(LayoutsReportTest, JsonHasNoInfinity) {
  const StatusOr<std::string> text = FormatJson(Rows(), {.relative = 1e-6});
  ASSERT_TRUE(text.ok()) << text.status();
  const Json report = *ParseJson(*text, "report");
  EXPECT_EQ(report["ok"], false);
  ASSERT_EQ(report["layouts"].size(), 3U);
  EXPECT_EQ(report["layouts"][0]["layout"], "tp2");
  EXPECT_EQ(report["layouts"][0]["ranks"], 2);
  EXPECT_EQ(report["layouts"][0]["loss"], 1e-7);
  EXPECT_EQ(report["layouts"][0]["gradients"], 3e-7);
  EXPECT_TRUE(report["layouts"][2]["loss"].is_null());
  EXPECT_EQ(report["layouts"][2]["problem"], "a loss differs");
}

}  // namespace
}  // namespace cria::trainer
