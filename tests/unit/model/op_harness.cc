#include "tests/unit/model/op_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"
#include "model/cpu/cpu_ops.h"

namespace cria::model {
namespace {

constexpr char kGuard = 0x5A;

uint16_t RoundToBF16(double value) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace

std::vector<Backend> Backends() { return {{"cpu", cpu::NewCpuOps}}; }

TestTensor::TestTensor(DType dtype, int64_t rows, int64_t cols, int64_t padding)
    : dtype_(dtype),
      rows_(rows),
      cols_(cols),
      stride_(cols + padding),
      memory_(static_cast<size_t>(rows * stride_ * DTypeBytes(dtype)), kGuard) {
  for (int64_t r = 0; r < rows; ++r) {
    std::memset(memory_.data() + r * stride_ * DTypeBytes(dtype), 0,
                static_cast<size_t>(cols * DTypeBytes(dtype)));
  }
}

TestTensor TestTensor::Random(DType dtype, int64_t rows, int64_t cols, uint64_t seed,
                              int64_t padding, double scale) {
  TestTensor tensor(dtype, rows, cols, padding);
  const Rng rng(seed, StreamOf("op_harness"));
  for (int64_t i = 0; i < rows * cols; ++i) {
    tensor.Set(i / cols, i % cols, scale * rng.Normal(static_cast<uint64_t>(i)));
  }
  return tensor;
}

TestTensor TestTensor::Of(DType dtype, int64_t rows, int64_t cols,
                          const std::vector<double>& values) {
  TestTensor tensor(dtype, rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) tensor.Set(i / cols, i % cols, values[i]);
  return tensor;
}

TestTensor TestTensor::OfIndices(const std::vector<int32_t>& values) {
  TestTensor tensor(DType::kI32, 1, static_cast<int64_t>(values.size()));
  std::memcpy(tensor.memory_.data(), values.data(), tensor.memory_.size());
  return tensor;
}

// A view writes through: constness of a TestTensor is that of its shape.
Tensor TestTensor::matrix() const {
  return Tensor(const_cast<char*>(memory_.data()), dtype_, {rows_, stride_}).Columns(0, cols_);
}

Tensor TestTensor::vector() const {
  CRIA_CHECK_EQ(stride_, cols_);
  return Tensor(const_cast<char*>(memory_.data()), dtype_, {rows_ * cols_});
}

void TestTensor::Set(int64_t row, int64_t col, double value) {
  char* at = memory_.data() + (row * stride_ + col) * DTypeBytes(dtype_);
  if (dtype_ == DType::kBF16) {
    const uint16_t bits = RoundToBF16(value);
    std::memcpy(at, &bits, sizeof(bits));
  } else {
    const float rounded = static_cast<float>(value);
    std::memcpy(at, &rounded, sizeof(rounded));
  }
}

double TestTensor::At(int64_t row, int64_t col) const {
  const char* at = memory_.data() + (row * stride_ + col) * DTypeBytes(dtype_);
  if (dtype_ == DType::kBF16) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

std::vector<double> TestTensor::values() const {
  std::vector<double> values;
  for (int64_t i = 0; i < rows_ * cols_; ++i) values.push_back(At(i / cols_, i % cols_));
  return values;
}

std::vector<int32_t> TestTensor::indices() const {
  std::vector<int32_t> values(memory_.size() / sizeof(int32_t));
  std::memcpy(values.data(), memory_.data(), memory_.size());
  return values;
}

bool TestTensor::guards_intact() const {
  for (int64_t r = 0; r < rows_; ++r) {
    const char* begin = memory_.data() + (r * stride_ + cols_) * DTypeBytes(dtype_);
    const char* end = memory_.data() + (r + 1) * stride_ * DTypeBytes(dtype_);
    if (!std::all_of(begin, end, [](char c) { return c == kGuard; })) return false;
  }
  return true;
}

double Tolerance(DType dtype) { return dtype == DType::kBF16 ? 0x1p-8 : 3e-6; }

namespace {

double LargestMagnitude(const std::vector<double>& values) {
  double largest = 1e-30;
  for (const double x : values) largest = std::max(largest, std::fabs(x));
  return largest;
}

}  // namespace

void ExpectClose(const TestTensor& got, const std::vector<double>& want, const std::string& what,
                 double slack) {
  ASSERT_EQ(static_cast<int64_t>(want.size()), got.rows() * got.cols()) << what;
  EXPECT_TRUE(got.guards_intact()) << what << ": written beyond a row";
  const double limit = Tolerance(got.dtype()) * slack * LargestMagnitude(want);
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const int64_t index = static_cast<int64_t>(i);
    const double error = std::fabs(got.At(index / got.cols(), index % got.cols()) - want[i]);
    if (error > worst || std::isnan(error)) {
      worst = error;
      at = i;
      if (std::isnan(error)) break;
    }
  }
  EXPECT_LE(worst, limit) << what << ": worst at " << at << " of " << got.rows() << " x "
                          << got.cols() << ", wanted " << want[at];
}

void ExpectGradient(const TestTensor& got, const std::vector<double>& x,
                    const std::function<double(const std::vector<double>&)>& loss,
                    const std::string& what, double slack) {
  ASSERT_EQ(static_cast<int64_t>(x.size()), got.rows() * got.cols()) << what;
  EXPECT_TRUE(got.guards_intact()) << what << ": written beyond a row";
  const std::vector<double> gradient = got.values();
  // A gradient that is zero in exact arithmetic is what is left of terms of size one.
  const double limit =
      (Tolerance(got.dtype()) * slack + 1e-7) * std::max(LargestMagnitude(gradient), 0.1);
  const size_t stride = std::max<size_t>(1, x.size() / 60) | 1;  // odd: visits all columns
  for (size_t i = 0; i < x.size(); i += stride) {
    // Fourth order: the error is of order h^4, and rounding's about 1e-16 / h.
    constexpr double kStep = 1e-3;
    const auto at = [&](double offset) {
      std::vector<double> moved = x;
      moved[i] += offset;
      return loss(moved);
    };
    const double numeric =
        (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
    ASSERT_NEAR(gradient[i], numeric, limit) << what << ": element " << i << " of " << x.size();
  }
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  CRIA_CHECK_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace cria::model
