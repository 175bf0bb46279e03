// The reference's backward passes are the derivatives of its forward passes, to twelve digits.

#include "tests/unit/model/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "base/rng.h"
#include "tests/unit/model/op_harness.h"

namespace cria::model::reference {
namespace {

Values Random(size_t n, uint64_t seed) {
  const Rng rng(seed, StreamOf("reference_test"));
  Values values;
  for (size_t i = 0; i < n; ++i) values.push_back(rng.Normal(i));
  return values;
}

void ExpectDerivative(const Values& gradient, const Values& x,
                      const std::function<double(const Values&)>& loss, const std::string& what) {
  ASSERT_EQ(gradient.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(gradient[i], NumericGradient(x, i, loss), 1e-9) << what << " element " << i;
  }
}

TEST(ReferenceTest, RmsNorm) {
  const Values x = Random(3 * 7, 1), weight = Random(7, 2), dy = Random(3 * 7, 3);
  const RmsNormGradients g = RmsNormBackward(dy, x, weight, 1e-2);
  ExpectDerivative(
      g.dx, x, [&](const Values& v) { return Dot(dy, RmsNorm(v, weight, 1e-2)); }, "dx");
  ExpectDerivative(
      g.dweight, weight, [&](const Values& v) { return Dot(dy, RmsNorm(x, v, 1e-2)); }, "dweight");
}

TEST(ReferenceTest, RopeBackwardIsTheInverse) {
  const Indices positions = {0, 2, 1};
  Values cosines, sines;
  for (const double angle : {0.0, 0.0, 1.0, 0.25, 2.0, 0.5}) {
    cosines.push_back(std::cos(angle));
    sines.push_back(std::sin(angle));
  }
  const Values x = Random(3 * 2 * 4, 1), dy = Random(3 * 2 * 4, 2);
  ExpectDerivative(
      Rope(dy, positions, cosines, sines, 2, 4, true), x,
      [&](const Values& v) { return Dot(dy, Rope(v, positions, cosines, sines, 2, 4, false)); },
      "dx");
}

TEST(ReferenceTest, Attention) {
  const AttentionShape shape = {
      .batch = 2, .time = 6, .heads = 4, .kv_heads = 2, .head_dim = 3, .scale = 0.7};
  const Indices doc_start = {0, 0, 0, 3, 3, 3, 0, 1, 1, 1, 1, 5};
  const Values q = Random(12 * 12, 1), k = Random(12 * 6, 2), v = Random(12 * 6, 3);
  const Values dout = Random(12 * 12, 4);
  const AttentionGradients g = AttentionBackward(dout, q, k, v, doc_start, shape);
  const auto loss = [&](const Values& q_, const Values& k_, const Values& v_) {
    return Dot(dout, Attention(q_, k_, v_, doc_start, shape));
  };
  ExpectDerivative(
      g.dq, q, [&](const Values& x) { return loss(x, k, v); }, "dq");
  ExpectDerivative(
      g.dk, k, [&](const Values& x) { return loss(q, x, v); }, "dk");
  ExpectDerivative(
      g.dv, v, [&](const Values& x) { return loss(q, k, x); }, "dv");
}

TEST(ReferenceTest, Swiglu) {
  const Values gate_up = Random(3 * 10, 1), dact = Random(3 * 5, 2);
  ExpectDerivative(
      SwigluBackward(dact, gate_up, 5), gate_up,
      [&](const Values& v) { return Dot(dact, Swiglu(v, 5)); }, "dgate_up");
}

TEST(ReferenceTest, Embedding) {
  const Indices tokens = {3, 0, 3, 3, 1};
  const Values table = Random(4 * 3, 1), dout = Random(5 * 3, 2);
  ExpectDerivative(
      EmbeddingBackward(tokens, dout, 4, 3), table,
      [&](const Values& v) { return Dot(dout, Embedding(tokens, v, 3)); }, "dtable");
}

TEST(ReferenceTest, CrossEntropy) {
  const Indices targets = {3, -100, 0};
  const Values logits = Random(3 * 5, 1);
  for (const double z_loss : {0.0, 0.1}) {
    ExpectDerivative(
        CrossEntropyBackward(logits, targets, 5, z_loss, 0.5), logits,
        [&](const Values& v) {
          double sum = 0;
          for (const double loss : CrossEntropy(v, targets, 5, z_loss)) sum += 0.5 * loss;
          return sum;
        },
        "dlogits");
  }
}

}  // namespace
}  // namespace cria::model::reference
