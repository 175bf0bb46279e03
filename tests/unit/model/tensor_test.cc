#include "model/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace cria::model {
namespace {

TEST(TensorTest, KnowsShapeStridesAndBytes) {
  std::vector<float> data(24);
  const Tensor x(data.data(), DType::kF32, {2, 3, 4});
  EXPECT_TRUE(x.defined());
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor().num_elements(), 0);
  EXPECT_EQ(x.num_dims(), 3);
  EXPECT_EQ(x.num_elements(), 24);
  EXPECT_EQ(x.bytes(), 96);
  EXPECT_EQ(x.stride(0), 12);
  EXPECT_EQ(x.stride(1), 4);
  EXPECT_EQ(x.stride(2), 1);
  EXPECT_TRUE(x.contiguous());
  EXPECT_EQ(x.ToString(), "f32[2, 3, 4]");
  EXPECT_EQ(Tensor(nullptr, DType::kBF16, {0, 7}).num_elements(), 0);
  EXPECT_EQ(Tensor(nullptr, DType::kBF16, {3, 7}).bytes(), 42);
  EXPECT_EQ(Tensor(nullptr, DType::kI32, {3}).ToString(), "i32[3]");
}

TEST(TensorTest, RowsAndColumnsAreViews) {
  std::vector<float> data(5 * 7);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const Tensor x(data.data(), DType::kF32, {5, 7});
  const Tensor part = x.Rows(1, 4).Columns(2, 5);
  EXPECT_EQ(part.dim(0), 3);
  EXPECT_EQ(part.dim(1), 3);
  EXPECT_EQ(part.stride(0), 7);
  EXPECT_FALSE(part.contiguous());
  EXPECT_EQ(part.f32()[0], 9);                        // row 1, column 2
  EXPECT_EQ(part.f32()[2 * part.stride(0) + 2], 25);  // row 3, column 4
  EXPECT_TRUE(x.Rows(2, 2).contiguous());
  EXPECT_EQ(x.Rows(5, 5).num_elements(), 0);
  EXPECT_TRUE(x.Rows(1, 2).Columns(1, 3).contiguous());  // one row has no distance
  EXPECT_EQ(x.Prefix({2, 3}).stride(0), 3);
  EXPECT_EQ(x.View({35}).f32()[34], 34);
}

TEST(TensorDeathTest, MisuseAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<float> data(12);
  const Tensor x(data.data(), DType::kF32, {3, 4});
  EXPECT_DEATH(x.bf16(), "f32\\[3, 4\\], used as bf16");
  EXPECT_DEATH(x.Rows(2, 4), "rows 2 to 4");
  EXPECT_DEATH(x.Columns(-1, 2), "columns -1 to 2");
  EXPECT_DEATH(x.View({5, 2}), "10 against 12");
  EXPECT_DEATH(x.Columns(0, 2).View({6}), "strided");
}

// Reports: 32-bit indices overflow where B x T x V passes 2^31.
TEST(TensorTest, IndicesBeyond31Bits) {
  constexpr int64_t kBillions = int64_t{1} << 31;
  for (const int64_t rows : {kBillions / 4096 - 1, kBillions / 4096, kBillions / 4096 + 1}) {
    char* base = reinterpret_cast<char*>(int64_t{1} << 20);  // never read
    const Tensor x(base, DType::kF32, {rows, 4096});
    EXPECT_EQ(x.num_elements(), rows * 4096);
    EXPECT_EQ(x.bytes(), rows * 16384);
    const Tensor last = x.Rows(rows - 1, rows).Columns(4095, 4096);
    EXPECT_EQ(static_cast<char*>(last.data()) - base, (rows * 4096 - 1) * 4);
    const Tensor flat = x.View({1, rows * 4096}).Columns(rows * 4096 - 3, rows * 4096);
    EXPECT_EQ(static_cast<char*>(flat.data()) - base, (rows * 4096 - 3) * 4);
  }
  const Tensor logits(nullptr, DType::kF32, {64, 8192, 128256});
  EXPECT_EQ(logits.num_elements(), int64_t{64} * 8192 * 128256);
  EXPECT_EQ(logits.stride(0), int64_t{8192} * 128256);
}

}  // namespace
}  // namespace cria::model
