// The op harness: the loss and the optimizer's operations.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/model/ops_fixture.h"
#include "tests/unit/model/reference.h"

namespace cria::model {
namespace {

using reference::Indices;
using reference::Values;

constexpr DType kF32 = DType::kF32;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

class CrossEntropyTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(CrossEntropyTest);

// Losses and dlogits (of dtype, or in the logits' memory).
std::vector<TestTensor> RunCrossEntropy(Ops& ops, const TestTensor& logits, const Indices& targets,
                                        DType type, bool in_place, double z_loss) {
  const TestTensor targets_R = TestTensor::OfIndices(targets);
  const TestTensor losses(kF32, 1, logits.rows());
  const TestTensor logits_copy = logits, dlogits(type, logits.rows(), logits.cols());
  ops.CrossEntropy({.logits = logits_copy.matrix(),
                    .targets = targets_R.vector(),
                    .losses = losses.vector(),
                    .dlogits = in_place ? logits_copy.matrix() : dlogits.matrix(),
                    .grad_scale = 0.25f,
                    .z_loss = static_cast<float>(z_loss)});
  return {losses, in_place ? logits_copy : dlogits};
}

TEST_P(CrossEntropyTest, EqualsTheReferenceAndItsGradient) {
  for (const int64_t vocab : {1, 2, 131, 509, 4096, 50257}) {
    for (const double z_loss : {0.0, 0.125}) {
      const int64_t rows = vocab > 10000 ? 3 : 11;  // over the kernels' block of 8
      Indices targets;
      for (int64_t r = 0; r < rows; ++r) {
        targets.push_back(static_cast<int32_t>((r * 37 + vocab - 1) % vocab));
      }
      targets[1] = -100;
      const TestTensor logits = TestTensor::Random(kF32, rows, vocab, 4, 0, 2);
      const std::string what = " of vocabulary " + std::to_string(vocab);
      const Values want = reference::CrossEntropyBackward(logits.values(), targets, vocab,
                                                          static_cast<float>(z_loss), 0.25);
      for (const bool in_place : {false, true}) {
        if (in_place && dtype() != kF32) continue;
        const std::vector<TestTensor> out = Run([&](Ops& ops) {
          return RunCrossEntropy(ops, logits, targets, dtype(), in_place, z_loss);
        });
        ExpectClose(Op::kCrossEntropy, out[0],
                    reference::CrossEntropy(logits.values(), targets, vocab, 0), "losses" + what);
        ExpectClose(Op::kCrossEntropyBackward, out[1], want, "dlogits" + what);
        EXPECT_EQ(out[0].At(0, 1), 0);
        for (int64_t v = 0; v < vocab; ++v) ASSERT_EQ(out[1].At(1, v), 0);
        if (vocab > 200 || in_place) continue;
        ExpectGradient(
            Op::kCrossEntropyBackward, out[1], logits.values(),
            [&](const Values& x) {
              double sum = 0;
              for (const double loss : reference::CrossEntropy(x, targets, vocab, z_loss)) {
                sum += 0.25 * loss;
              }
              return sum;
            },
            "dlogits" + what);
      }
    }
  }
}

TEST_P(CrossEntropyTest, WithoutGradientLeavesTheLogits) {
  const TestTensor logits = TestTensor::Random(kF32, 3, 131, 4);
  const TestTensor targets_R = TestTensor::OfIndices({5, -1, 130});
  const std::vector<TestTensor> out = Run([&](Ops& ops) {
    const TestTensor losses(kF32, 1, 3), copy = logits;
    ops.CrossEntropy(
        {.logits = copy.matrix(), .targets = targets_R.vector(), .losses = losses.vector()});
    return std::vector{losses, copy};
  });
  EXPECT_EQ(out[1].bytes(), logits.bytes());
  ExpectClose(Op::kCrossEntropy, out[0],
              reference::CrossEntropy(logits.values(), {5, -1, 130}, 131, 0), "losses");
}

TEST_P(CrossEntropyTest, LargeAndNonFiniteLogits) {
  TestTensor logits = TestTensor::Random(kF32, 6, 33, 4);
  logits.Set(0, 7, 1e4);    // exp would overflow
  logits.Set(1, 7, -1e30);  // contributes nothing
  logits.Set(2, 7, -kInf);  // neither
  logits.Set(3, 7, kNan);
  logits.Set(4, 32, kInf);
  logits.Set(5, 7, kNan);
  const Indices targets = {7, 3, 3, 3, 3, -100};
  const std::vector<TestTensor> out =
      Run([&](Ops& ops) { return RunCrossEntropy(ops, logits, targets, dtype(), false, 0); });
  EXPECT_EQ(out[0].At(0, 0), 0);
  EXPECT_EQ(out[1].At(0, 7), 0);
  for (const int64_t row : {1, 2}) {
    EXPECT_TRUE(std::isfinite(out[0].At(0, row)));
    EXPECT_EQ(out[1].At(row, 7), 0);
  }
  for (const int64_t row : {3, 4}) EXPECT_FALSE(std::isfinite(out[0].At(0, row)));
  // A masked row counts as nothing, whatever is in it.
  EXPECT_EQ(out[0].At(0, 5), 0);
  for (int64_t v = 0; v < 33; ++v) EXPECT_EQ(out[1].At(5, v), 0);
  // The gradients of a row sum to zero: softmax minus one-hot.
  for (const int64_t row : {0, 1, 2}) {
    double sum = 0;
    for (int64_t v = 0; v < 33; ++v) sum += out[1].At(row, v);
    EXPECT_NEAR(sum, 0, dtype() == kF32 ? 1e-7 : 1e-2);
  }
}

// ---- a vocabulary in parts ----

struct Part {
  int64_t begin, end;
};

// Losses and gradient of logits in parts of their columns, each with the lse of all.
std::vector<TestTensor> RunParts(Ops& ops, const TestTensor& logits, const Indices& targets,
                                 const std::vector<Part>& parts, DType type, double z_loss) {
  const int64_t rows = logits.rows();
  const TestTensor targets_R = TestTensor::OfIndices(targets);
  std::vector<TestTensor> own, stats;
  for (const Part& part : parts) {
    TestTensor x(kF32, rows, part.end - part.begin);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t v = part.begin; v < part.end; ++v) x.Set(r, v - part.begin, logits.At(r, v));
    }
    const TestTensor three(kF32, 3, rows);
    const auto row = [&](int64_t i) { return three.matrix().Rows(i, i + 1).View({rows}); };
    ops.LogitStats({.logits = x.matrix(),
                    .targets = targets_R.vector(),
                    .first_class = part.begin,
                    .max = row(0),
                    .sum = row(1),
                    .target_logit = row(2)});
    own.push_back(x);
    stats.push_back(three);
  }
  TestTensor losses(kF32, 1, rows), lse(kF32, 1, rows);
  for (int64_t r = 0; r < rows; ++r) {
    double max = -kInf, sum = 0, target = 0;
    for (const TestTensor& s : stats) max = std::max(max, s.At(0, r));
    for (const TestTensor& s : stats) {
      sum += s.At(1, r) * std::exp(s.At(0, r) - max);
      target += s.At(2, r);
    }
    lse.Set(0, r, max + std::log(sum));
    losses.Set(0, r, targets[static_cast<size_t>(r)] < 0 ? 0 : max + std::log(sum) - target);
  }
  TestTensor dlogits(type, rows, logits.cols());
  for (size_t i = 0; i < parts.size(); ++i) {
    const TestTensor d(type, rows, own[i].cols());
    // In place where the type allows it.
    const TestTensor& to = type == kF32 ? own[i] : d;
    ops.LogitGradient({.logits = own[i].matrix(),
                       .targets = targets_R.vector(),
                       .first_class = parts[i].begin,
                       .lse = lse.vector(),
                       .dlogits = to.matrix(),
                       .grad_scale = 0.25f,
                       .z_loss = static_cast<float>(z_loss)});
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t v = 0; v < to.cols(); ++v) dlogits.Set(r, parts[i].begin + v, to.At(r, v));
    }
  }
  return {losses, dlogits};
}

TEST_P(CrossEntropyTest, PartsOfTheVocabularyEqualTheReference) {
  for (const int64_t vocab : {1, 2, 131, 4096}) {
    for (const double z_loss : {0.0, 0.125}) {
      Indices targets;
      for (int64_t r = 0; r < 11; ++r) targets.push_back(static_cast<int32_t>(r * 37 % vocab));
      targets[1] = -100;
      const TestTensor logits = TestTensor::Random(kF32, 11, vocab, 4, 0, 2);
      const Values want = reference::CrossEntropyBackward(logits.values(), targets, vocab,
                                                          static_cast<float>(z_loss), 0.25);
      const int64_t third = (vocab + 2) / 3;
      for (const std::vector<Part>& parts :
           {std::vector<Part>{{0, vocab}},
            {{0, third}, {third, std::min(vocab, 2 * third)}, {std::min(vocab, 2 * third), vocab}},
            {{0, 0}, {0, vocab}, {vocab, vocab}}}) {  // ranks without a class
        const std::vector<TestTensor> out =
            Run([&](Ops& ops) { return RunParts(ops, logits, targets, parts, dtype(), z_loss); });
        const std::string what =
            " of " + std::to_string(parts.size()) + " parts of " + std::to_string(vocab);
        ExpectClose(Op::kCrossEntropy, out[0],
                    reference::CrossEntropy(logits.values(), targets, vocab, 0), "losses" + what);
        ExpectClose(Op::kCrossEntropyBackward, out[1], want, "dlogits" + what);
        for (int64_t v = 0; v < vocab; ++v) ASSERT_EQ(out[1].At(1, v), 0);
      }
    }
  }
}

TEST_P(CrossEntropyTest, OnePartIsTheSameBitsAsTheWhole) {
  for (const int64_t vocab : {1, 131, 4096}) {
    const Indices targets = {0, -100, static_cast<int32_t>(vocab - 1), 0};
    const TestTensor logits = TestTensor::Random(kF32, 4, vocab, 4, 0, 2);
    const TestTensor targets_R = TestTensor::OfIndices(targets);
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const TestTensor whole = RunCrossEntropy(ops, logits, targets, dtype(), false, 0.125)[1];
      const TestTensor max(kF32, 1, 4), sum(kF32, 1, 4), target(kF32, 1, 4);
      TestTensor lse(kF32, 1, 4), dlogits(dtype(), 4, vocab);
      ops.LogitStats({.logits = logits.matrix(),
                      .targets = targets_R.vector(),
                      .max = max.vector(),
                      .sum = sum.vector(),
                      .target_logit = target.vector()});
      for (int64_t r = 0; r < 4; ++r) {
        const auto sum_r = static_cast<float>(sum.At(0, r));
        lse.Set(0, r, static_cast<float>(max.At(0, r)) + std::log(sum_r));
      }
      ops.LogitGradient({.logits = logits.matrix(),
                         .targets = targets_R.vector(),
                         .lse = lse.vector(),
                         .dlogits = dlogits.matrix(),
                         .grad_scale = 0.25f,
                         .z_loss = 0.125f});
      return std::vector{whole, dlogits};
    });
    EXPECT_EQ(out[1].bytes(), out[0].bytes());
  }
}

class AdamWTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(AdamWTest);

struct AdamWCase {
  int64_t n;
  float weight_decay, grad_scale;
  int64_t first_step;
};

TEST_P(AdamWTest, TenStepsEqualTheClosedForm) {
  for (const AdamWCase& c : {AdamWCase{1, 0.1f, 0.5f, 1}, AdamWCase{31, 0.0f, 1.0f, 1},
                             AdamWCase{5000, 0.1f, 1.0f, 1000}, AdamWCase{16385, 0.1f, 0.5f, 1}}) {
    const TestTensor start = TestTensor::Random(kF32, 1, c.n, 1);
    Values want_weight = start.values(), want_m(want_weight.size()), want_v(want_weight.size());
    std::vector<TestTensor> grads;
    for (int64_t step = 0; step < 10; ++step) {
      grads.push_back(TestTensor::Random(kF32, 1, c.n, static_cast<uint64_t>(step) + 10));
      reference::AdamW({.lr = 0.01f,
                        .beta1 = 0.9f,
                        .beta2 = 0.95f,
                        .eps = 1e-8f,
                        .weight_decay = c.weight_decay,
                        .grad_scale = c.grad_scale,
                        .step = c.first_step + step},
                       grads.back().values(), &want_weight, &want_m, &want_v);
    }
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const TestTensor weight = start, m(kF32, 1, c.n), v(kF32, 1, c.n);
      for (int64_t step = 0; step < 10; ++step) {
        const TestTensor grad = grads[static_cast<size_t>(step)];
        ops.AdamW({.weight = weight.vector(),
                   .grad = grad.vector(),
                   .m = m.vector(),
                   .v = v.vector(),
                   .lr = 0.01f,
                   .beta1 = 0.9f,
                   .beta2 = 0.95f,
                   .eps = 1e-8f,
                   .weight_decay = c.weight_decay,
                   .grad_scale = c.grad_scale,
                   .step = c.first_step + step});
        EXPECT_EQ(grad.bytes(), grads[static_cast<size_t>(step)].bytes());  // not changed
      }
      return std::vector{weight, m, v};
    });
    ExpectClose(Op::kAdamW, out[0], want_weight, "weight");
    ExpectClose(Op::kAdamW, out[1], want_m, "m");
    ExpectClose(Op::kAdamW, out[2], want_v, "v");
  }
}

// The first step moves each weight by lr whatever the gradient's size: m_hat / sqrt(v_hat) = +-1.
TEST_P(AdamWTest, FirstStepIsTheLearningRate) {
  for (const double size : {1e-4, 1.0, 1e6}) {
    TestTensor grad(kF32, 1, 2);
    grad.Set(0, 0, size);
    grad.Set(0, 1, -size);
    const std::vector<TestTensor> out = Run([&](Ops& ops) {
      const TestTensor weight(kF32, 1, 2), m(kF32, 1, 2), v(kF32, 1, 2);
      ops.AdamW({.weight = weight.vector(),
                 .grad = grad.vector(),
                 .m = m.vector(),
                 .v = v.vector(),
                 .lr = 0.01f,
                 .beta1 = 0.9f,
                 .beta2 = 0.999f,
                 .eps = 1e-12f,
                 .step = 1});
      return std::vector{weight};
    });
    EXPECT_NEAR(out[0].At(0, 0), -0.01, 1e-7);
    EXPECT_NEAR(out[0].At(0, 1), 0.01, 1e-7);
  }
}

TEST_P(AdamWTest, DecaysOnlyWhereTold) {
  const TestTensor start = TestTensor::Random(kF32, 1, 77, 1), zero(kF32, 1, 77);
  const std::vector<TestTensor> out = Run([&](Ops& ops) {
    const TestTensor plain = start, decayed = start;
    for (const TestTensor* weight : {&plain, &decayed}) {
      const TestTensor m(kF32, 1, 77), v(kF32, 1, 77);
      ops.AdamW({.weight = weight->vector(),
                 .grad = zero.vector(),
                 .m = m.vector(),
                 .v = v.vector(),
                 .lr = 0.5f,
                 .beta1 = 0.9f,
                 .beta2 = 0.999f,
                 .eps = 1e-8f,
                 .weight_decay = weight == &decayed ? 0.5f : 0.0f,
                 .step = 1});
    }
    return std::vector{plain, decayed};
  });
  EXPECT_EQ(out[0].bytes(), start.bytes());
  for (int64_t i = 0; i < 77; ++i)
    EXPECT_EQ(out[1].At(0, i), static_cast<float>(0.75 * start.At(0, i)));
}

class SumOfSquaresTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(SumOfSquaresTest);

TEST_P(SumOfSquaresTest, IsExactToDoubleRounding) {
  for (const int64_t n : {1, 7, 33, 16383, 16384, 16385, 100003}) {  // around the kernels' block
    const TestTensor x = TestTensor::Random(kF32, 1, n, 8);
    const double want = reference::SumOfSquares(x.values());
    Run([&](Ops& ops) {
      const double got = ops.SumOfSquares(x.vector());
      EXPECT_NEAR(got, want, Tolerance(Op::kSumOfSquares, kF32) * want) << n;
      TestTensor bits(kF32, 1, 2);  // for the comparison of thread counts
      std::copy_n(reinterpret_cast<const float*>(&got), 2, bits.vector().f32());
      return std::vector{bits};
    });
  }
}

// What skips a step: an element that is not finite, wherever it is; never a large or tiny one.
TEST_P(SumOfSquaresTest, IsNotFiniteExactlyWhenAnElementIsNot) {
  const std::unique_ptr<Ops> ops = backend().make();
  for (const int64_t n : {1, 9, 16385, 33000}) {
    TestTensor x = TestTensor::Random(kF32, 1, n, 8);
    for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
      const double before = x.At(0, at);
      for (const double bad : {kInf, -kInf, kNan}) {
        x.Set(0, at, bad);
        EXPECT_FALSE(std::isfinite(ops->SumOfSquares(x.vector()))) << bad << " at " << at;
      }
      x.Set(0, at, before);
    }
    for (int64_t i = 0; i < n; ++i) x.Set(0, i, i % 2 == 0 ? 3.4028234e38 : -3.4028234e38);
    EXPECT_NEAR(ops->SumOfSquares(x.vector()) / (1.1579208e77 * static_cast<double>(n)), 1, 1e-6);
    for (int64_t i = 0; i < n; ++i) x.Set(0, i, 1e-40);
    EXPECT_NEAR(ops->SumOfSquares(x.vector()) / (1e-80 * static_cast<double>(n)), 1, 1e-3);
  }
}

}  // namespace
}  // namespace cria::model
