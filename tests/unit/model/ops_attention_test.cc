// The op harness: attention, forward and backward.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/model/ops_fixture.h"
#include "tests/unit/model/reference.h"

namespace cria::model {
namespace {

using reference::Indices;
using reference::Values;

constexpr DType kF32 = DType::kF32;

class AttentionTest : public OpsFixture {};
CRIA_INSTANTIATE_OPS_TEST(AttentionTest);

enum class Documents { kOne, kGrowing, kSingleTokens, kTwo, kCount };

struct Shape {
  int64_t batch = 1, time = 1, heads = 1, kv_heads = 1, head_dim = 16;
  Documents documents = Documents::kOne;

  int64_t rows() const { return batch * time; }
  float scale() const { return static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim))); }
  reference::AttentionShape ForReference() const {
    return {batch, time, heads, kv_heads, head_dim, static_cast<double>(scale())};
  }
  std::string Name() const {
    return "attention B " + std::to_string(batch) + " T " + std::to_string(time) + " H " +
           std::to_string(heads) + " G " + std::to_string(kv_heads) + " K " +
           std::to_string(head_dim) + " documents " + std::to_string(static_cast<int>(documents)) +
           " ";
  }
  Indices DocStart() const {
    Indices doc_start;
    for (int64_t b = 0; b < batch; ++b) {
      int64_t start = 0, length = 1;
      for (int64_t t = 0; t < time; ++t) {
        switch (documents) {
          case Documents::kGrowing:  // 1, 2, 3, ... tokens
            if (t == start + length) {
              start = t;
              ++length;
            }
            break;
          case Documents::kSingleTokens:
            start = t;
            break;
          case Documents::kTwo:
            start = t < time / 2 + b ? 0 : time / 2 + b;
            break;
          default:
            break;
        }
        doc_start.push_back(static_cast<int32_t>(start));
      }
    }
    return doc_start;
  }
};

struct Inputs {
  Inputs(const Shape& shape, DType type, double size = 1)
      : q(TestTensor::Random(type, shape.rows(), shape.heads * shape.head_dim, 1, 16, size)),
        k(TestTensor::Random(type, shape.rows(), shape.kv_heads * shape.head_dim, 2, 16, size)),
        v(TestTensor::Random(type, shape.rows(), shape.kv_heads * shape.head_dim, 3, 16)),
        dout(TestTensor::Random(type, shape.rows(), shape.heads * shape.head_dim, 4)) {}

  TestTensor q, k, v, dout;
};

enum Output { kOut, kLse, kDq, kDk, kDv };

// Forward and backward; outputs as numbered above.
std::vector<TestTensor> RunAttention(Ops& ops, const Shape& s, const Inputs& in,
                                     const Indices& doc_start) {
  const DType type = in.q.dtype();
  const TestTensor doc_start_R = TestTensor::OfIndices(doc_start);
  const TestTensor out(type, s.rows(), s.heads * s.head_dim);
  const TestTensor lse(kF32, 1, s.rows() * s.heads);
  const TestTensor dq(type, s.rows(), s.heads * s.head_dim, 16);
  const TestTensor dk(type, s.rows(), s.kv_heads * s.head_dim, 16);
  const TestTensor dv(type, s.rows(), s.kv_heads * s.head_dim, 16);
  const AttentionForwardArgs forward = {.q = in.q.matrix(),
                                        .k = in.k.matrix(),
                                        .v = in.v.matrix(),
                                        .doc_start = doc_start_R.vector(),
                                        .out = out.matrix(),
                                        .lse = lse.vector(),
                                        .batch = s.batch,
                                        .time = s.time,
                                        .heads = s.heads,
                                        .kv_heads = s.kv_heads,
                                        .head_dim = s.head_dim,
                                        .scale = s.scale()};
  ops.AttentionForward(forward);
  ops.AttentionBackward({.forward = forward,
                         .dout = in.dout.matrix(),
                         .dq = dq.matrix(),
                         .dk = dk.matrix(),
                         .dv = dv.matrix()});
  return {out, lse, dq, dk, dv};
}

// Lengths around the tile of 64 and over a chunk of 256; head sizes that are no multiple of a
// vector's; groups of heads; documents.
std::vector<Shape> Shapes() {
  constexpr int64_t kHeads[][2] = {{2, 2}, {4, 2}, {3, 1}, {1, 1}};
  std::vector<Shape> shapes;
  int turn = 0;
  for (const int64_t time : {1, 63, 64, 65, 200, 300}) {
    for (const int64_t head_dim : {2, 6, 16, 48, 64, 80}) {
      const auto& heads = kHeads[turn % 4];
      // Five steps of a four-cycle, so that kinds of documents meet all kinds of heads.
      const auto documents = static_cast<Documents>((turn + turn / 4) % 4);
      shapes.push_back({.batch = time < 100 ? 2 : 1,
                        .time = time,
                        .heads = time < 100 ? heads[0] : heads[0] / heads[1],
                        .kv_heads = time < 100 ? heads[1] : 1,
                        .head_dim = head_dim,
                        .documents = documents});
      ++turn;
    }
  }
  shapes.push_back({.time = 256, .heads = 2, .head_dim = 8});
  shapes.push_back({.time = 257, .heads = 2, .head_dim = 8, .documents = Documents::kTwo});
  return shapes;
}

TEST_P(AttentionTest, EqualsTheReferenceForwardAndBackward) {
  for (const Shape& s : Shapes()) {
    const Inputs in(s, dtype());
    const Indices doc_start = s.DocStart();
    const std::vector<TestTensor> out =
        Run([&](Ops& ops) { return RunAttention(ops, s, in, doc_start); });
    Values want_lse;
    const Values want = reference::Attention(in.q.values(), in.k.values(), in.v.values(), doc_start,
                                             s.ForReference(), &want_lse);
    ExpectClose(Op::kAttention, out[kOut], want, s.Name() + "out");
    ExpectClose(Op::kAttention, out[kLse], want_lse, s.Name() + "lse");
    const reference::AttentionGradients g = reference::AttentionBackward(
        in.dout.values(), in.q.values(), in.k.values(), in.v.values(), doc_start, s.ForReference());
    ExpectClose(Op::kAttentionBackward, out[kDq], g.dq, s.Name() + "dq");
    ExpectClose(Op::kAttentionBackward, out[kDk], g.dk, s.Name() + "dk");
    ExpectClose(Op::kAttentionBackward, out[kDv], g.dv, s.Name() + "dv");
  }
}

TEST_P(AttentionTest, BackwardIsTheNumericalGradient) {
  for (const Shape& s :
       {Shape{2, 5, 2, 2, 16, Documents::kOne}, Shape{1, 37, 4, 2, 6, Documents::kGrowing},
        Shape{1, 66, 2, 1, 10, Documents::kTwo}}) {
    const Inputs in(s, dtype());
    const Indices doc_start = s.DocStart();
    const std::vector<TestTensor> out =
        Run([&](Ops& ops) { return RunAttention(ops, s, in, doc_start); });
    const Values q = in.q.values(), k = in.k.values(), v = in.v.values(), dout = in.dout.values();
    const auto loss = [&](const Values& q_, const Values& k_, const Values& v_) {
      return Dot(dout, reference::Attention(q_, k_, v_, doc_start, s.ForReference()));
    };
    ExpectGradient(
        Op::kAttentionBackward, out[kDq], q, [&](const Values& x) { return loss(x, k, v); },
        s.Name() + "dq");
    ExpectGradient(
        Op::kAttentionBackward, out[kDk], k, [&](const Values& x) { return loss(q, x, v); },
        s.Name() + "dk");
    ExpectGradient(
        Op::kAttentionBackward, out[kDv], v, [&](const Values& x) { return loss(q, k, x); },
        s.Name() + "dv");
  }
}

// Whether rows [begin, end) of two matrices are the same bits.
bool SameRows(const TestTensor& a, const TestTensor& b, int64_t begin, int64_t end) {
  const auto row_bytes = static_cast<int64_t>(a.bytes().size()) / a.rows();
  return std::equal(a.bytes().begin() + begin * row_bytes, a.bytes().begin() + end * row_bytes,
                    b.bytes().begin() + begin * row_bytes);
}

// Reports: a fused kernel ignored the mask without a word; positions restarted, attention did not.
TEST_P(AttentionTest, ADocumentDoesNotSeeItsNeighbours) {
  // Boundaries inside a tile, at its edge and inside the second chunk.
  for (const int64_t boundary : {1, 37, 64, 100, 270}) {
    const Shape s = {.time = 300, .heads = 2, .kv_heads = 1, .head_dim = 16};
    Indices doc_start(300, 0);
    std::fill(doc_start.begin() + boundary, doc_start.end(), static_cast<int32_t>(boundary));
    const Inputs in(s, dtype());
    const std::unique_ptr<Ops> ops = backend().make();
    const std::vector<TestTensor> before = RunAttention(*ops, s, in, doc_start);
    for (const bool first : {true, false}) {
      Inputs changed = in;
      const int64_t begin = first ? 0 : boundary, end = first ? boundary : 300;
      for (TestTensor* x : {&changed.q, &changed.k, &changed.v, &changed.dout}) {
        for (int64_t r = begin; r < end; ++r) {
          for (int64_t c = 0; c < x->cols(); ++c) x->Set(r, c, 3 - 2 * x->At(r, c));
        }
      }
      const std::vector<TestTensor> after = RunAttention(*ops, s, changed, doc_start);
      for (const Output output : {kOut, kDq, kDk, kDv}) {
        const std::string what =
            s.Name() + "boundary " + std::to_string(boundary) + " output " + std::to_string(output);
        if (output == kOut || output == kDv) {  // dq, dk of a single token are zero
          EXPECT_FALSE(SameRows(before[output], after[output], begin, end)) << what;
        }
        EXPECT_TRUE(first ? SameRows(before[output], after[output], end, 300)
                          : SameRows(before[output], after[output], 0, begin))
            << what;
      }
    }
  }
}

TEST_P(AttentionTest, ATokenDoesNotSeeTheFuture) {
  const Shape s = {.time = 130, .heads = 2, .kv_heads = 2, .head_dim = 16};
  const Indices doc_start = s.DocStart();
  const Inputs in(s, dtype());
  const std::unique_ptr<Ops> ops = backend().make();
  const TestTensor before = RunAttention(*ops, s, in, doc_start)[kOut];
  for (const int64_t from : {1, 63, 64, 100, 129}) {
    Inputs changed = in;
    for (TestTensor* x : {&changed.q, &changed.k, &changed.v}) {
      for (int64_t r = from; r < 130; ++r) {
        for (int64_t c = 0; c < x->cols(); ++c) x->Set(r, c, -x->At(r, c));
      }
    }
    const TestTensor after = RunAttention(*ops, s, changed, doc_start)[kOut];
    EXPECT_TRUE(SameRows(before, after, 0, from)) << from;
    EXPECT_FALSE(SameRows(before, after, from, 130)) << from;
  }
}

// ---- stretches of queries ----

// Rows [first, first + time) of each sequence of `all` tokens.
TestTensor RowsOfStretch(const TestTensor& x, int64_t all, int64_t first, int64_t time) {
  const int64_t batch = x.rows() / all;
  TestTensor rows(x.dtype(), batch * time, x.cols(), 8);
  for (int64_t r = 0; r < batch * time; ++r) {
    for (int64_t c = 0; c < x.cols(); ++c) {
      rows.Set(r, c, x.At(r / time * all + first + r % time, c));
    }
  }
  return rows;
}

// Writes the stretch's rows back: the inverse.
void PutStretch(const TestTensor& rows, int64_t all, int64_t first, int64_t time, TestTensor* x) {
  for (int64_t r = 0; r < rows.rows(); ++r) {
    for (int64_t c = 0; c < rows.cols(); ++c) {
      x->Set(r / time * all + first + r % time, c, rows.At(r, c));
    }
  }
}

// As RunAttention, by stretches of `step` queries (the first one shorter by `cut`) over all keys;
// dk and dv in fp32, the first stretch written and the others added.
std::vector<TestTensor> RunStretches(Ops& ops, const Shape& s, const Inputs& in,
                                     const Indices& doc_start, int64_t step, int64_t cut) {
  const DType type = in.q.dtype();
  TestTensor out(type, s.rows(), s.heads * s.head_dim), lse(kF32, 1, s.rows() * s.heads);
  TestTensor dq(type, s.rows(), s.heads * s.head_dim, 16);
  const TestTensor dk = TestTensor::Random(kF32, s.rows(), s.kv_heads * s.head_dim, 8, 16);
  const TestTensor dv = TestTensor::Random(kF32, s.rows(), s.kv_heads * s.head_dim, 9, 16);
  int64_t time = 0;
  for (int64_t first = 0; first < s.time; first += time) {
    time = std::min(first == 0 ? step - cut : step, s.time - first);
    const TestTensor q = RowsOfStretch(in.q, s.time, first, time);
    const TestTensor dout = RowsOfStretch(in.dout, s.time, first, time);
    Indices starts;
    for (int64_t r = 0; r < s.batch * time; ++r) {
      starts.push_back(doc_start[static_cast<size_t>(r / time * s.time + first + r % time)]);
    }
    const TestTensor starts_R = TestTensor::OfIndices(starts);
    const TestTensor part_out(type, s.batch * time, out.cols());
    const TestTensor part_lse(kF32, 1, s.batch * time * s.heads);
    const TestTensor part_dq(type, s.batch * time, out.cols(), 16);
    const AttentionForwardArgs forward = {.q = q.matrix(),
                                          .k = in.k.matrix(),
                                          .v = in.v.matrix(),
                                          .doc_start = starts_R.vector(),
                                          .out = part_out.matrix(),
                                          .lse = part_lse.vector(),
                                          .batch = s.batch,
                                          .time = time,
                                          .heads = s.heads,
                                          .kv_heads = s.kv_heads,
                                          .head_dim = s.head_dim,
                                          .scale = s.scale(),
                                          .keys = s.time,
                                          .first_query = first};
    ops.AttentionForward(forward);
    ops.AttentionBackward({.forward = forward,
                           .dout = dout.matrix(),
                           .dq = part_dq.matrix(),
                           .dk = dk.matrix(),
                           .dv = dv.matrix(),
                           .accumulate = first > 0});
    PutStretch(part_out, s.time, first, time, &out);
    PutStretch(part_dq, s.time, first, time, &dq);
    EXPECT_TRUE(part_dq.guards_intact());
    for (int64_t i = 0; i < s.batch * s.heads * time; ++i) {
      lse.Set(0, i / time * s.time + first + i % time, part_lse.At(0, i));
    }
  }
  return {out, lse, dq, dk, dv};
}

// A context split over ranks: what a query gets is the same bits whoever computes it.
TEST_P(AttentionTest, StretchesOfQueriesEqualTheWhole) {
  for (const Shape& s :
       {Shape{2, 150, 4, 2, 16, Documents::kOne}, Shape{2, 150, 2, 2, 6, Documents::kTwo},
        Shape{1, 330, 3, 1, 10, Documents::kGrowing},
        Shape{2, 70, 2, 1, 80, Documents::kSingleTokens}}) {
    const Inputs in(s, dtype());
    const Indices doc_start = s.DocStart();
    const std::vector<TestTensor> whole = Run([&](Ops& ops) {
      std::vector<TestTensor> all = RunAttention(ops, s, in, doc_start);
      const std::vector<TestTensor> one = RunStretches(ops, s, in, doc_start, s.time, 0);
      all.push_back(one[kDk]);  // in fp32
      all.push_back(one[kDv]);
      return all;
    });
    for (const auto& [step, cut] :
         {std::pair{1, 0}, {7, 3}, {16, 0}, {64, 0}, {64, 27}, {100, 0}, {129, 1}, {300, 0}}) {
      if (step == 1 && s.time > 100) continue;  // slow
      const std::string what =
          s.Name() + "stretches of " + std::to_string(step) + " cut " + std::to_string(cut) + " ";
      const std::vector<TestTensor> got =
          Run([&](Ops& ops) { return RunStretches(ops, s, in, doc_start, step, cut); });
      for (const Output output : {kOut, kLse, kDq}) {
        EXPECT_EQ(got[output].values(), whole[output].values()) << what << "output " << output;
      }
      ExpectClose(Op::kAttentionBackward, got[kDk], whole[5].values(), what + "dk");
      ExpectClose(Op::kAttentionBackward, got[kDv], whole[6].values(), what + "dv");
    }
    // And the whole in fp32 is what the compute type's gradients were rounded from.
    for (const Output output : {kDk, kDv}) {
      const TestTensor& wide = whole[output == kDk ? 5 : 6];
      EXPECT_EQ(TestTensor::Of(dtype(), wide.rows(), wide.cols(), wide.values()).values(),
                whole[output].values());
    }
  }
}

// Keys that no query of the stretch sees: before its documents and after its last query.
TEST_P(AttentionTest, UnseenKeysGetZerosOrNothing) {
  const Shape s = {.time = 300, .heads = 2, .kv_heads = 1, .head_dim = 16};
  const int64_t first = 150, time = 30, oldest = 140;
  const Inputs in(s, dtype());
  const TestTensor q = RowsOfStretch(in.q, s.time, first, time);
  const TestTensor dout = RowsOfStretch(in.dout, s.time, first, time);
  const TestTensor starts_R = TestTensor::OfIndices(Indices(time, oldest));
  const TestTensor before = TestTensor::Random(kF32, s.time, s.head_dim, 8);
  const std::vector<TestTensor> got = Run([&](Ops& ops) {
    std::vector<TestTensor> outputs;
    for (const bool accumulate : {false, true}) {
      const TestTensor out(dtype(), time, 2 * s.head_dim), lse(kF32, 1, 2 * time);
      const TestTensor dq(dtype(), time, 2 * s.head_dim), dk = before, dv = before;
      const AttentionForwardArgs forward = {.q = q.matrix(),
                                            .k = in.k.matrix(),
                                            .v = in.v.matrix(),
                                            .doc_start = starts_R.vector(),
                                            .out = out.matrix(),
                                            .lse = lse.vector(),
                                            .batch = 1,
                                            .time = time,
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .head_dim = s.head_dim,
                                            .scale = s.scale(),
                                            .keys = s.time,
                                            .first_query = first};
      ops.AttentionForward(forward);
      ops.AttentionBackward({.forward = forward,
                             .dout = dout.matrix(),
                             .dq = dq.matrix(),
                             .dk = dk.matrix(),
                             .dv = dv.matrix(),
                             .accumulate = accumulate});
      outputs.insert(outputs.end(), {dk, dv});
    }
    return outputs;
  });
  for (int64_t key = 0; key < s.time; ++key) {
    const bool seen = key >= oldest && key < first + time;
    for (int64_t c = 0; c < s.head_dim; ++c) {
      for (const size_t i : {0, 1}) {
        const double written = got[i].At(key, c), added = got[i + 2].At(key, c);
        EXPECT_EQ(written != 0, seen) << key;
        EXPECT_EQ(added, static_cast<float>(before.At(key, c)) + static_cast<float>(written))
            << key;
      }
    }
  }
}

// exp of a score of thousands would overflow without the running maximum.
TEST_P(AttentionTest, LargeScoresStayFinite) {
  const Shape s = {.time = 150, .heads = 1, .kv_heads = 1, .head_dim = 16};
  const Inputs in(s, dtype(), /*size=*/40);
  const Indices doc_start = s.DocStart();
  const std::vector<TestTensor> out =
      Run([&](Ops& ops) { return RunAttention(ops, s, in, doc_start); });
  const Values want = reference::Attention(in.q.values(), in.k.values(), in.v.values(), doc_start,
                                           s.ForReference());
  // Scores of 6,000 are known to 2^-24 x 6,000 x a few: probabilities to 2e-3.
  const Values got = out[kOut].values();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-2);
  for (const TestTensor& x : out) {
    for (const double value : x.values()) ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace cria::model
