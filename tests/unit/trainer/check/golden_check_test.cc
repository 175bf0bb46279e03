// The model against PyTorch's numbers: tests/golden always, larger folders where CRIA_TEST_DATA has
// them; and that the check can fail.

#include "trainer/check/golden_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "tests/support/process.h"

namespace cria::trainer {
namespace {

// The worst quantity as a share of its limit; a line for each that is over.
double WorstShare(const std::vector<GoldenQuantity>& quantities) {
  double worst = 0;
  for (const GoldenQuantity& quantity : quantities) {
    EXPECT_TRUE(quantity.ok()) << quantity.name << ": " << quantity.error << " is over "
                               << quantity.limit;
    if (quantity.limit > 0) worst = std::max(worst, quantity.error / quantity.limit);
  }
  return worst;
}

void CheckFolder(const std::string& dir, const std::vector<model::Precision>& precisions) {
  for (const model::Precision precision : precisions) {
    SCOPED_TRACE(StrCat(dir, " ", model::PrecisionName(precision)));
    const auto quantities = CheckGolden(dir, precision);
    ASSERT_TRUE(quantities.ok()) << quantities.status();
    // Logits, losses, norms, greedy, packed, long, two gradients and ten steps of each parameter.
    EXPECT_GE(quantities->size(), 10u + 3 * 12);
    const double worst = WorstShare(*quantities);
    // A check that compared a thing with itself would find no difference at all.
    EXPECT_GT(worst, 1e-4);
  }
}

class GoldenTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, GoldenTest,
                         testing::Values("gqa_llama31", "tied_headdim", "mha_linear"),
                         [](const auto& info) { return info.param; });

TEST_P(GoldenTest, MatchesPyTorchAtEachPrecision) {
  std::vector<model::Precision> all;
  for (const std::string& name : model::PrecisionNames()) {
    all.push_back(*model::PrecisionFromName(name));
  }
  CheckFolder(JoinPath("tests/golden", GetParam()), all);
}

TEST_P(GoldenTest, MatchesPyTorchOnTheLargerModels) {
  const char* const data = std::getenv("CRIA_TEST_DATA");
  const std::string dir = JoinPath(JoinPath(data == nullptr ? "" : data, "golden"), GetParam());
  if (data == nullptr || !IsDir(dir)) {
    GTEST_SKIP() << "no " << GetParam() << " in CRIA_TEST_DATA/golden; tests/golden was checked";
  }
  CheckFolder(dir, {model::Precision::kFp32, model::Precision::kBf16});
}

// A copy of a golden folder that a test may damage.
std::string CopyOf(const char* name) {
  const std::string copy = FreshDir(StrCat("golden_", name));
  std::filesystem::copy(JoinPath("tests/golden", name), copy);
  for (const auto& entry : std::filesystem::directory_iterator(copy)) {
    std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
  }
  return copy;
}

// Adds 2^-9 of itself to one fp32 value in the middle of the file's data.
void Nudge(const std::string& path) {
  std::string bytes = ReadFile(path).value();
  const size_t at = bytes.size() / 8 * 4;
  float value;
  std::memcpy(&value, bytes.data() + at, 4);
  ASSERT_NE(value, 0);
  value *= 1 + 1.0f / 512;
  std::memcpy(bytes.data() + at, &value, 4);
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
}

TEST(GoldenCheckTest, OneAlteredWeightIsOverTheLimits) {
  const std::string dir = CopyOf("mha_linear");
  Nudge(JoinPath(dir, "model.safetensors"));
  const auto quantities = CheckGolden(dir, model::Precision::kFp32).value();
  int num_over = 0;
  for (const GoldenQuantity& quantity : quantities) num_over += !quantity.ok();
  EXPECT_GT(num_over, 5);
  EXPECT_EQ(RunGoldenCheck({dir}, model::Precision::kFp32, stderr), 1);
}

TEST(GoldenCheckTest, OneAlteredExpectationIsOverTheLimits) {
  for (const char* file : {"gradients.safetensors", "gradients_masked.safetensors"}) {
    const std::string dir = CopyOf("tied_headdim");
    // One element of a gradient is a small share of its norm; a whole file of them is not.
    std::string bytes = ReadFile(JoinPath(dir, file)).value();
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), 8);
    for (size_t at = 8 + header_bytes; at + 4 <= bytes.size(); at += 4) {
      float value;
      std::memcpy(&value, bytes.data() + at, 4);
      value *= 1.00001f;
      std::memcpy(bytes.data() + at, &value, 4);
    }
    ASSERT_TRUE(WriteFileAtomic(JoinPath(dir, file), bytes).ok());
    int num_over = 0;
    const auto quantities = CheckGolden(dir, model::Precision::kFp32).value();
    for (const GoldenQuantity& quantity : quantities) num_over += !quantity.ok();
    EXPECT_GE(num_over, 20) << file;
  }
}

TEST(GoldenCheckTest, AFolderThatCannotBeReadIsExitTwoAndNamed) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(RunGoldenCheck({"no/such/folder"}, model::Precision::kFp32, stdout), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("no/such/folder/config.json"),
            std::string::npos);
  for (const char* file : {"config.json", "expected.json", "io.safetensors", "model.safetensors",
                           "gradients.safetensors", "weights_after_10_steps.safetensors"}) {
    const std::string dir = CopyOf("mha_linear");
    const std::string path = JoinPath(dir, file);
    const std::string bytes = ReadFile(path).value();
    ASSERT_TRUE(WriteFileAtomic(path, bytes.substr(0, bytes.size() / 2)).ok());
    testing::internal::CaptureStderr();
    EXPECT_EQ(RunGoldenCheck({dir}, model::Precision::kFp32, stdout), 2) << file;
    const std::string message = testing::internal::GetCapturedStderr();
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 1) << message;
  }
}

}  // namespace
}  // namespace cria::trainer
