#include "trainer/bench/part_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "base/str.h"

namespace cria::trainer {
namespace {

using model::DType;
using model::Tensor;

// As a context over four ranks, two chunks each.
constexpr int64_t kStretches = 8;

// Both as fp32.
double LargestDifference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(a.f32()[i] - b.f32()[i])));
  }
  return largest;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

}  // namespace

PartBench::PartBench(const BenchShape& shape, model::Precision precision, model::Ops* ops,
                     Clock* clock)
    : config_(shape.config),
      time_(shape.tokens()),
      ops_(ops),
      clock_(clock),
      arena_(model::Arena::Planning()) {
  const DType type = model::ComputeType(precision);
  const int64_t dim = config_.dim, q = config_.QDim(), kv = config_.KvDim(), up = 2 * config_.ffn;
  uint64_t stream = 0;
  const auto random = [&](DType dtype, int64_t rows, int64_t columns) {
    const Tensor x = arena_.Alloc(dtype, {rows, columns});
    ++stream;
    if (arena_.planning()) return x;
    const Rng rng(7, stream);
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (size_t i = 0; i < values.size(); ++i) values[i] = rng.Normal(i);
    ops_->Copy(Tensor(values.data(), DType::kF32, {rows, columns}), x);
    return x;
  };
  const auto allocate = [&] {
    q_ = random(type, time_, q);
    k_ = random(type, time_, kv);
    v_ = random(type, time_, kv);
    dout_ = random(type, time_, q);
    out_ = arena_.Alloc(type, {time_, q});
    dq_ = arena_.Alloc(type, {time_, q});
    dk_ = arena_.Alloc(DType::kF32, {time_, kv});
    dv_ = arena_.Alloc(DType::kF32, {time_, kv});
    lse_ = arena_.Alloc(DType::kF32, {config_.heads * time_});
    doc_start_ = arena_.Alloc(DType::kI32, {time_});
    const Tensor x = random(DType::kF32, time_, dim), w = random(DType::kF32, up, dim);
    const Tensor dy = random(DType::kF32, time_, up);
    products_ = {{.a = x, .b = w, .c = arena_.Alloc(DType::kF32, {time_, up}), .transpose_b = true},
                 {.a = dy, .b = w, .c = arena_.Alloc(DType::kF32, {time_, dim})},
                 {.a = dy, .b = x, .c = arena_.Alloc(DType::kF32, {up, dim}), .transpose_a = true}};
  };
  allocate();
  arena_ = model::Arena(arena_.used_bytes());
  allocate();

  const auto scores = static_cast<double>(config_.heads * config_.HeadDim() * time_) *
                      static_cast<double>(time_ + 1);
  const std::string parts =
      StrCat(kStretches, " stretches of ", (time_ + kStretches - 1) / kStretches);
  rows_.push_back({.name = "attention forward, " + parts, .flops = 2 * scores});
  rows_.push_back({.name = "attention backward, " + parts, .flops = 5 * scores});
  for (const Product& p : products_) {
    const int64_t k = p.a.dim(p.transpose_a ? 0 : 1);
    rows_.push_back({.name = StrCat("chain ", p.c.dim(0), "x", p.c.dim(1), "x", k,
                                    p.transpose_a ? " T" : " N", p.transpose_b ? "T" : "N"),
                     .flops = 2.0 * static_cast<double>(p.c.num_elements() * k)});
  }
}

Status PartBench::Verify() {
  const auto copy = [](const Tensor& x) {
    const auto* bytes = static_cast<const char*>(x.data());
    return std::vector<char>(bytes, bytes + x.bytes());
  };
  Forward(1);
  Backward(1);
  std::vector<char> out = copy(out_), dq = copy(dq_), dk = copy(dk_), dv = copy(dv_);
  const auto saved = [](std::vector<char>& bytes, const Tensor& x) {
    return Tensor(bytes.data(), x.dtype(), {x.dim(0), x.dim(1)});
  };
  Forward(kStretches);
  Backward(kStretches);
  if (!SameBits(out_, saved(out, out_)) || !SameBits(dq_, saved(dq, dq_))) {
    return InternalError("verify: attention in stretches gives other bits");
  }
  const double difference =
      std::max(LargestDifference(dk_, saved(dk, dk_)), LargestDifference(dv_, saved(dv, dv_)));
  if (!(difference < 1e-3)) {
    return InternalError("verify: gradients of keys and values differ by ", difference);
  }
  for (const Product& product : products_) {
    Multiply(product, /*chain=*/false);
    std::vector<char> want = copy(product.c);
    Multiply(product, /*chain=*/true);
    const double error = LargestDifference(product.c, saved(want, product.c));
    if (!(error < 1e-2)) return InternalError("verify: a chain is off by ", error);
  }
  return OkStatus();
}

void PartBench::Round() {
  rows_[0].whole_s.Add(Time([&] { Forward(1); }));
  rows_[1].whole_s.Add(Time([&] { Backward(1); }));
  rows_[0].seconds.Add(Time([&] { Forward(kStretches); }));
  rows_[1].seconds.Add(Time([&] { Backward(kStretches); }));
  for (size_t i = 0; i < products_.size(); ++i) {
    rows_[2 + i].whole_s.Add(Time([&] { Multiply(products_[i], /*chain=*/false); }));
    rows_[2 + i].seconds.Add(Time([&] { Multiply(products_[i], /*chain=*/true); }));
  }
}

model::AttentionForwardArgs PartBench::Stretch(int64_t first, int64_t time) const {
  return {.q = q_.Rows(first, first + time),
          .k = k_,
          .v = v_,
          .doc_start = doc_start_.Rows(first, first + time),
          .out = out_.Rows(first, first + time),
          .lse = lse_.Rows(config_.heads * first, config_.heads * (first + time)),
          .batch = 1,
          .time = time,
          .heads = config_.heads,
          .kv_heads = config_.kv_heads,
          .head_dim = config_.HeadDim(),
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config_.HeadDim()))),
          .keys = time_,
          .first_query = first};
}

void PartBench::Forward(int64_t stretches) {
  const int64_t step = (time_ + stretches - 1) / stretches;
  for (int64_t first = 0; first < time_; first += step) {
    ops_->AttentionForward(Stretch(first, std::min(step, time_ - first)));
  }
}

// After a Forward of as many stretches.
void PartBench::Backward(int64_t stretches) {
  const int64_t step = (time_ + stretches - 1) / stretches;
  for (int64_t first = 0; first < time_; first += step) {
    const int64_t time = std::min(step, time_ - first);
    ops_->AttentionBackward({.forward = Stretch(first, time),
                             .dout = dout_.Rows(first, first + time),
                             .dq = dq_.Rows(first, first + time),
                             .dk = dk_,
                             .dv = dv_,
                             .accumulate = first > 0});
  }
}

void PartBench::Multiply(const Product& product, bool chain) {
  ops_->Matmul({.a = product.a,
                .b = product.b,
                .c = product.c,
                .transpose_a = product.transpose_a,
                .transpose_b = product.transpose_b,
                .chain = chain});
}

double PartBench::Time(const std::function<void()>& call) const {
  const double start = clock_->MonotonicSeconds();
  call();
  return clock_->MonotonicSeconds() - start;
}

}  // namespace cria::trainer
