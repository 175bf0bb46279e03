#include "tests/unit/model/op_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "base/parallel.h"
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
  } else if (dtype_ == DType::kI64) {
    const auto integer = static_cast<int64_t>(value);
    std::memcpy(at, &integer, sizeof(integer));
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
  if (dtype_ == DType::kI64) {
    int64_t integer;
    std::memcpy(&integer, at, sizeof(integer));
    return static_cast<double>(integer);
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

std::vector<TestTensor> OnAnyThreads(const Backend& backend,
                                     const std::function<std::vector<TestTensor>(Ops&)>& run) {
  const int num_threads = NumThreads();
  std::vector<TestTensor> first;
  for (const int threads : {2, 1, 3}) {
    SetNumThreads(threads);
    const std::unique_ptr<Ops> ops = backend.make();
    std::vector<TestTensor> outputs = run(*ops);
    if (first.empty()) first = outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_TRUE(outputs[i].bytes() == first[i].bytes())
          << "output " << i << ": " << threads << " threads give other bits than 2";
    }
  }
  SetNumThreads(num_threads);
  return first;
}

namespace {

// By operation: the error of an fp32 result and of a bf16 one, relative to the largest value; and
// the least value to relate to, where results are what is left when terms of size one cancel.
// bf16: half a step of a number is up to 2^-8 of it. fp32: a few steps of 2^-24, more where many
// terms of both signs are summed.
struct ToleranceRow {
  Op op;
  double f32, bf16, least;
};
constexpr double kHalfStep = 0x1.02p-8;  // and a little for fp32's own error before the rounding
constexpr ToleranceRow kTolerances[] = {
    {Op::kMatmul, 2e-6, kHalfStep, 0},
    {Op::kRmsNorm, 1e-6, kHalfStep, 0},
    {Op::kRmsNormBackward, 2e-6, kHalfStep, 0.1},
    {Op::kRope, 2e-7, kHalfStep, 0},
    {Op::kAttention, 2e-6, kHalfStep, 0},
    {Op::kAttentionBackward, 4e-6, 2 * kHalfStep, 1},  // its input `out` is rounded as well
    {Op::kSwiglu, 5e-7, kHalfStep, 0},
    {Op::kSwigluBackward, 5e-7, kHalfStep, 0},
    {Op::kEmbedding, 2e-7, kHalfStep, 0},
    {Op::kCrossEntropy, 1e-6, kHalfStep, 0},
    {Op::kCrossEntropyBackward, 1e-6, kHalfStep, 0.1},
    {Op::kAdamW, 1e-6, kHalfStep, 0.1},
    {Op::kSumOfSquares, 1e-12, kHalfStep, 0},
};

const ToleranceRow& RowOf(Op op) {
  for (const ToleranceRow& row : kTolerances) {
    if (row.op == op) return row;
  }
  CRIA_CHECK(false, "no tolerance for operation ", static_cast<int>(op));
}

double LargestMagnitude(const std::vector<double>& values) {
  double largest = 1e-30;
  for (const double x : values) largest = std::max(largest, std::fabs(x));
  return largest;
}

}  // namespace

double Tolerance(Op op, DType dtype) {
  return dtype == DType::kBF16 ? RowOf(op).bf16 : RowOf(op).f32;
}

void ExpectClose(Op op, const TestTensor& got, const std::vector<double>& want,
                 const std::string& what) {
  ASSERT_EQ(static_cast<int64_t>(want.size()), got.rows() * got.cols()) << what;
  EXPECT_TRUE(got.guards_intact()) << what << ": written beyond a row";
  const double limit =
      Tolerance(op, got.dtype()) * std::max(LargestMagnitude(want), RowOf(op).least);
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

double NumericGradient(const std::vector<double>& x, size_t i,
                       const std::function<double(const std::vector<double>&)>& loss) {
  constexpr double kStep = 1e-3;
  std::vector<double> moved = x;
  const auto at = [&](double offset) {
    moved[i] = x[i] + offset;
    return loss(moved);
  };
  return (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
}

void ExpectGradient(Op op, const TestTensor& got, const std::vector<double>& x,
                    const std::function<double(const std::vector<double>&)>& loss,
                    const std::string& what) {
  ASSERT_EQ(static_cast<int64_t>(x.size()), got.rows() * got.cols()) << what;
  EXPECT_TRUE(got.guards_intact()) << what << ": written beyond a row";
  const std::vector<double> gradient = got.values();
  const double limit =
      (Tolerance(op, got.dtype()) + 1e-7) * std::max(LargestMagnitude(gradient), RowOf(op).least);
  const size_t stride = std::max<size_t>(1, x.size() / 60) | 1;  // odd: visits all columns
  for (size_t i = 0; i < x.size(); i += stride) {
    ASSERT_NEAR(gradient[i], NumericGradient(x, i, loss), limit)
        << what << ": element " << i << " of " << x.size();
  }
}

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  CRIA_CHECK_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace cria::model
