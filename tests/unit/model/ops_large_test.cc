// Operations on rows beyond element 2^31 of a tensor. The memory is reserved and only the pages in
// use are touched, so that 17 GB of tensor cost a few kilobytes.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "model/ops.h"
#include "tests/unit/model/op_harness.h"

namespace cria::model {
namespace {

// Over 2^31 elements and over 2^32 bytes, not aligned to either.
constexpr int64_t kColumns = 1024;
constexpr int64_t kRows = (int64_t{1} << 21) + 3;

class Reserved {
 public:
  explicit Reserved(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory != MAP_FAILED) memory_ = memory;
  }
  ~Reserved() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;
  void* get() const { return memory_; }

 private:
  size_t bytes_;
  void* memory_ = nullptr;
};

class OpsLargeTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (memory_.get() == nullptr) {
      GTEST_SKIP() << "this system does not reserve 8 GB of address space (overcommit, ulimit -v)";
    }
  }

  Tensor Big(DType dtype) const { return Tensor(memory_.get(), dtype, {kRows, kColumns}); }

  const std::unique_ptr<Ops> ops_ = Backends()[static_cast<size_t>(GetParam())].make();
  const Reserved memory_{kRows * kColumns * 4};
};

INSTANTIATE_TEST_SUITE_P(Backends, OpsLargeTest,
                         testing::Range(0, static_cast<int>(Backends().size())),
                         [](const testing::TestParamInfo<int>& info) {
                           return Backends()[static_cast<size_t>(info.param)].name;
                         });

TEST_P(OpsLargeTest, EmbeddingOfTheLastToken) {
  const Tensor table = Big(DType::kF32);
  const auto last = static_cast<int32_t>(kRows - 1);
  for (int64_t i = 0; i < kColumns; ++i) {
    table.Rows(last, last + 1).f32()[i] = static_cast<float>(i);
  }
  const TestTensor tokens = TestTensor::OfIndices({last, 0, last});
  const TestTensor out(DType::kF32, 3, kColumns);
  ops_->EmbeddingForward({.tokens = tokens.vector(), .table = table, .out = out.matrix()});
  ops_->EmbeddingBackward({.tokens = tokens.vector(), .dout = out.matrix(), .dtable = table});
  for (int64_t i = 0; i < kColumns; ++i) {
    EXPECT_EQ(out.At(0, i), static_cast<double>(i));
    EXPECT_EQ(out.At(1, i), 0);
    EXPECT_EQ(table.Rows(last, last + 1).f32()[i], 3.0f * static_cast<float>(i));
  }
}

TEST_P(OpsLargeTest, RowsFarApart) {
  // Three rows whose distance is over 2^30 elements.
  const int64_t distance = (kRows - 1) / 2 * kColumns;
  const auto spread = [&](DType dtype, int64_t columns) {
    return Tensor(memory_.get(), dtype, {3, distance}).Columns(0, columns);
  };
  const TestTensor x = TestTensor::Random(DType::kF32, 3, 24, 1);
  const Tensor far = spread(DType::kF32, 24);
  ops_->Copy(x.matrix(), far);
  const TestTensor back(DType::kF32, 3, 24);
  ops_->Copy(far, back.matrix());
  EXPECT_EQ(back.values(), x.values());

  const TestTensor w = TestTensor::Random(DType::kF32, 5, 24, 2);
  const TestTensor near_y(DType::kF32, 3, 5), far_y(DType::kF32, 3, 5);
  ops_->Matmul({.a = x.matrix(), .b = w.matrix(), .c = near_y.matrix(), .transpose_b = true});
  ops_->Matmul({.a = far, .b = w.matrix(), .c = far_y.matrix(), .transpose_b = true});
  // The library may have another kernel for such distances.
  ExpectClose(Op::kMatmul, far_y, near_y.values(), "far");
  // Chains have one.
  for (const Tensor& y : {near_y.matrix(), far_y.matrix()}) {
    const Tensor a = y.data() == far_y.matrix().data() ? far : x.matrix();
    ops_->Matmul({.a = a, .b = w.matrix(), .c = y, .transpose_b = true, .chain = true});
  }
  EXPECT_EQ(far_y.bytes(), near_y.bytes());

  const TestTensor positions = TestTensor::OfIndices({0, 1, 0});
  const TestTensor cosines = TestTensor::Random(DType::kF32, 2, 12, 3);
  const TestTensor sines = TestTensor::Random(DType::kF32, 2, 12, 4);
  for (const Tensor& rotated : {x.matrix(), far}) {
    ops_->Rope({.x = rotated,
                .positions = positions.vector(),
                .cosines = cosines.matrix(),
                .sines = sines.matrix(),
                .head_dim = 24});
  }
  ops_->Copy(far, back.matrix());
  EXPECT_EQ(back.bytes(), x.bytes());
}

}  // namespace
}  // namespace cria::model
