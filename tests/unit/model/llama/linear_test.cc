// Linear layers at each precision: the three products against double, FP8 state, and the first
// operand that is not finite.

#include "model/llama/linear.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "model/cpu/cpu_ops.h"
#include "tests/unit/model/llama/tiny_model.h"
#include "tests/unit/model/op_harness.h"
#include "tests/unit/model/reference.h"

namespace cria::model {
namespace {

using reference::Values;

// One layer y = x w^T with x [R,K], w [N,K].
struct Layer {
  Layer(Precision precision, int64_t r, int64_t n, int64_t k)
      : type(ComputeType(precision)),
        rows(r),
        outs(n),
        ins(k),
        arena(1 << 22),
        linears(ops.get(), precision, {{"a"}, {"b"}}, r * (n > k ? n : k), n * k,
                std::max({r, n, k}), &arena),
        x(TestTensor::Random(type, r, k, 1)),
        w(TestTensor::Random(type, n, k, 2)),
        dy(TestTensor::Random(type, r, n, 3)),
        y(type, r, n),
        dx(type, r, k),
        dw(DType::kF32, n, k) {}

  void Forward(int64_t id = 0, bool record = true) {
    ASSERT_TRUE(
        linears
            .Forward(
                {.id = id, .x = x.matrix(), .w = w.matrix(), .y = y.matrix(), .record = record})
            .ok());
  }
  void Backward(int64_t id = 0) {
    const LinearBackwardArgs args = {.id = id,
                                     .dy = dy.matrix(),
                                     .x = x.matrix(),
                                     .w = w.matrix(),
                                     .dx = dx.matrix(),
                                     .dw = dw.matrix()};
    ASSERT_TRUE(linears.BackwardInput(args).ok());
    ASSERT_TRUE(linears.BackwardWeight(args).ok());
  }

  const DType type;
  const int64_t rows, outs, ins;
  std::unique_ptr<Ops> ops = cpu::NewCpuOps();
  Arena arena;
  Linears linears;
  TestTensor x, w, dy, y, dx, dw;
};

// Root mean square of the error over that of what is wanted.
double RmsError(const TestTensor& got, const Values& want) {
  const Values values = got.values();
  double error = 0, norm = 1e-300;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (values[i] - want[i]) * (values[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

// What one product of random numbers may be off by. An E4M3 operand is off by up to 2^-4, 2.6 % in
// the root mean square, E5M2 twice that; two operands add as squares.
double ProductTolerance(Precision precision, bool of_gradient) {
  if (precision == Precision::kFp32) return 1e-6;
  if (precision == Precision::kBf16) return 3e-3;
  return of_gradient ? 0.07 : 0.045;
}

class LinearTest : public testing::TestWithParam<Precision> {};

INSTANTIATE_TEST_SUITE_P(Precisions, LinearTest, testing::ValuesIn(AllPrecisions()),
                         [](const testing::TestParamInfo<Precision>& info) {
                           return std::string(PrecisionName(info.param));
                         });

// Odd sizes as well: a report had "must be divisible by 16" in the backward pass alone.
TEST_P(LinearTest, ThreeProductsAtOddAndAlignedSizes) {
  for (const auto& [r, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                                {7, 131, 33},
                                {64, 128, 256},
                                {129, 130, 131},
                                {35, 3, 257}}) {
    Layer l(GetParam(), r, n, k);
    for (int step = 0; step < 2; ++step) {  // the second with delayed scaling's history
      l.dw = TestTensor(DType::kF32, n, k);
      l.Forward();
      l.Backward();
      const Values x = l.x.values(), w = l.w.values(), dy = l.dy.values();
      const double forward = ProductTolerance(GetParam(), false);
      const double backward = ProductTolerance(GetParam(), true);
      EXPECT_LT(RmsError(l.y, reference::Matmul(x, w, {r, n, k, false, true})), forward);
      EXPECT_LT(RmsError(l.dx, reference::Matmul(dy, w, {r, k, n, false, false})), backward);
      EXPECT_LT(RmsError(l.dw, reference::Matmul(dy, x, {n, k, r, true, false})), backward);
      ASSERT_TRUE(l.linears.EndStep(false).ok());
    }
  }
}

TEST_P(LinearTest, WeightGradientsAddUp) {
  Layer l(GetParam(), 9, 17, 33);
  l.Backward();
  const Values once = l.dw.values();
  l.Backward();
  const Values twice = l.dw.values();
  for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-5);
}

// A report: rows of zeros (padding) made NaN, for want of an epsilon in amax.
TEST_P(LinearTest, ZerosGiveZeros) {
  Layer l(GetParam(), 5, 7, 150);
  for (int64_t c = 0; c < 150; ++c) l.x.Set(2, c, 0);
  for (int64_t c = 0; c < 7; ++c) l.dy.Set(3, c, 0);
  l.Forward();
  l.Backward();
  for (int64_t c = 0; c < 7; ++c) EXPECT_EQ(l.y.At(2, c), 0);
  for (int64_t c = 0; c < 150; ++c) EXPECT_EQ(l.dx.At(3, c), 0);
  for (const double v : l.y.values()) EXPECT_TRUE(std::isfinite(v));
  for (TestTensor* all : {&l.x, &l.w, &l.dy}) {
    *all = TestTensor(all->dtype(), all->rows(), all->cols());
  }
  l.dw = TestTensor(DType::kF32, 7, 150);
  l.Forward();
  l.Backward();
  for (const TestTensor* out : {&l.y, &l.dx, &l.dw}) {
    EXPECT_EQ(out->values(), Values(out->values().size()));
  }
  EXPECT_EQ(l.linears.first_non_finite(), "");
}

// A report: the amax of random initial weights was used after real ones were loaded.
TEST_P(LinearTest, WeightsAThousandTimesLargerKeepTheNominalError) {
  Layer l(GetParam(), 64, 65, 128);
  const TestTensor small = TestTensor::Random(l.type, 65, 128, 2, 0, 1e-3);
  l.w = small;
  for (int step = 0; step < 3; ++step) {
    l.Forward();
    ASSERT_TRUE(l.linears.EndStep(false).ok());
  }
  l.w = TestTensor::Random(l.type, 65, 128, 2);
  const Values want = reference::Matmul(l.x.values(), l.w.values(), {64, 65, 128, false, true});
  l.Forward(0, /*record=*/false);
  if (GetParam() == Precision::kFp8Delayed) {
    EXPECT_GT(RmsError(l.y, want), 0.5);  // what a stale scale does
  }
  l.linears.Reset();
  l.Forward();
  EXPECT_LT(RmsError(l.y, want), ProductTolerance(GetParam(), false));
}

TEST_P(LinearTest, SavedStateRestoresTheSameBits) {
  Layer l(GetParam(), 16, 17, 64);
  for (int step = 0; step < 3; ++step) {
    l.x = TestTensor::Random(l.type, 16, 64, static_cast<uint64_t>(step), 0, 1 + step);
    l.Forward(0);
    l.Forward(1);
    l.Backward(0);
    l.Backward(1);
    ASSERT_TRUE(l.linears.EndStep(false).ok());
  }
  const std::vector<NamedFloats> state = l.linears.SaveState();
  // Two arrays for three operands of two layers; never more.
  EXPECT_EQ(state.size(), GetParam() == Precision::kFp8Delayed ? 12u : 0u);
  Layer fresh(GetParam(), 16, 17, 64);
  ASSERT_TRUE(fresh.linears.LoadState(state).ok());
  fresh.x = l.x = TestTensor::Random(l.type, 16, 64, 9);
  l.Forward(1);
  fresh.Forward(1);
  EXPECT_EQ(l.y.values(), fresh.y.values());

  const Status wrong = fresh.linears.LoadState(std::vector<NamedFloats>{{"nobody.scale", {1}}});
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  const char* named =
      GetParam() == Precision::kFp8Delayed ? "a.input.amax_history" : "nobody.scale";
  EXPECT_NE(Message(wrong).find(named), std::string::npos) << wrong;
}

TEST_P(LinearTest, ASkippedStepLeavesNoTrace) {
  Layer l(GetParam(), 8, 9, 16);
  Layer twin(GetParam(), 8, 9, 16);
  for (Layer* layer : {&l, &twin}) {
    layer->Forward();
    ASSERT_TRUE(layer->linears.EndStep(false).ok());
  }
  l.x = TestTensor::Random(l.type, 8, 16, 5, 0, 1e6);
  l.Forward();
  l.x.Set(0, 0, std::numeric_limits<double>::infinity());
  l.Forward();
  ASSERT_TRUE(l.linears.EndStep(/*skipped=*/true).ok());
  l.x = twin.x;
  for (Layer* layer : {&l, &twin}) layer->Forward();
  EXPECT_EQ(l.y.values(), twin.y.values());
}

// Rounding to 8 bits saturates infinities: the name of the operand is all that shows them.
TEST_P(LinearTest, NamesTheFirstOperandThatIsNotFinite) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const bool fp8 = IsFp8(GetParam());
  for (const double bad : {kInf, -kInf, kNan}) {
    Layer l(GetParam(), 5, 9, 17);
    l.Forward();
    l.Backward();
    EXPECT_EQ(l.linears.first_non_finite(), "");
    ASSERT_TRUE(l.linears.EndStep(false).ok());

    Layer with_input(GetParam(), 5, 9, 17);
    with_input.x.Set(4, 16, bad);
    with_input.Forward(1);
    EXPECT_EQ(with_input.linears.first_non_finite(), fp8 ? "b.input" : "");
    EXPECT_EQ(std::isfinite(with_input.y.At(4, 8)), fp8 && std::isinf(bad));
    with_input.Forward(0);
    EXPECT_EQ(with_input.linears.first_non_finite(), fp8 ? "b.input" : "");
    ASSERT_TRUE(with_input.linears.EndStep(true).ok());
    EXPECT_EQ(with_input.linears.first_non_finite(), "");
    with_input.Forward(1, /*record=*/false);
    EXPECT_EQ(with_input.linears.first_non_finite(), "");

    Layer with_weight(GetParam(), 5, 9, 17);
    with_weight.w.Set(8, 0, bad);
    with_weight.Forward(0);
    EXPECT_EQ(with_weight.linears.first_non_finite(), fp8 ? "a.weight" : "");

    Layer with_gradient(GetParam(), 5, 9, 17);
    with_gradient.dy.Set(0, 8, bad);
    with_gradient.Backward(1);
    EXPECT_EQ(with_gradient.linears.first_non_finite(), fp8 ? "b.gradient" : "");
  }
}

}  // namespace
}  // namespace cria::model
