#include "model/precision.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cria::model {
namespace {

TEST(PrecisionTest, NamesAreFixedAndRoundTrip) {
  EXPECT_EQ(PrecisionNames(),
            (std::vector<std::string>{"fp32", "bf16", "fp8_tensorwise", "fp8_delayed",
                                      "fp8_rowwise", "fp8_blockwise"}));
  for (const std::string& name : PrecisionNames()) {
    const auto precision = PrecisionFromName(name);
    ASSERT_TRUE(precision.has_value()) << name;
    EXPECT_EQ(PrecisionName(*precision), name);
  }
  for (const char* name : {"", "FP32", "fp8", "fp16", "bf16 "}) {
    EXPECT_FALSE(PrecisionFromName(name).has_value()) << name;
  }
}

TEST(PrecisionTest, RecipesAndTypes) {
  EXPECT_EQ(ComputeType(Precision::kFp32), DType::kF32);
  EXPECT_FALSE(RecipeOf(Precision::kFp32).has_value());
  EXPECT_FALSE(RecipeOf(Precision::kBf16).has_value());
  EXPECT_EQ(RecipeOf(Precision::kFp8Tensorwise), Fp8Recipe::kTensorwise);
  EXPECT_EQ(RecipeOf(Precision::kFp8Delayed), Fp8Recipe::kDelayed);
  EXPECT_EQ(RecipeOf(Precision::kFp8Rowwise), Fp8Recipe::kRowwise);
  EXPECT_EQ(RecipeOf(Precision::kFp8Blockwise), Fp8Recipe::kBlockwise);
  for (const std::string& name : PrecisionNames()) {
    const Precision precision = *PrecisionFromName(name);
    EXPECT_EQ(IsFp8(precision), RecipeOf(precision).has_value()) << name;
    EXPECT_EQ(ComputeType(precision), name == "fp32" ? DType::kF32 : DType::kBF16) << name;
  }
}

}  // namespace
}  // namespace cria::model
