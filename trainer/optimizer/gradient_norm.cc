#include "trainer/optimizer/gradient_norm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/parallel.h"

namespace cria::trainer {
namespace {

using Wide = unsigned __int128;

// Gradients in fixed point stay below 2^13 (model::kGradientLog2Scale), their squares below 2^26:
// with 62 bits behind the point there is room for 2^40 of them.
constexpr int kSquareLog2Scale = 62;
constexpr double kSquareMax = 1 << 26;

constexpr size_t kNameBytes = 128;

Wide ExactSquares(const float* x, int64_t n) {
  constexpr double kScale = static_cast<double>(uint64_t{1} << kSquareLog2Scale);
  Wide sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double square = std::min(static_cast<double>(x[i]) * x[i], kSquareMax);
    // A square of 2^-16 or more is a multiple of 2^-62 by itself.
    const double scaled = std::nearbyint(square * kScale);
    sum += static_cast<Wide>(scaled);
  }
  return sum;
}

// Over threads; the sum has no order.
Wide ExactSquares(const model::Tensor& x) {
  constexpr int64_t kMaxItems = 64;
  const int64_t n = x.num_elements();
  const int64_t items = std::clamp<int64_t>(n >> 14, 1, kMaxItems);
  std::array<Wide, kMaxItems> sums;
  ParallelFor(items, [&](int64_t item) {
    const int64_t begin = n * item / items, end = n * (item + 1) / items;
    sums[static_cast<size_t>(item)] = ExactSquares(x.f32() + begin, end - begin);
  });
  Wide sum = 0;
  for (int64_t item = 0; item < items; ++item) sum += sums[static_cast<size_t>(item)];
  return sum;
}

}  // namespace

GradientNormMeter::GradientNormMeter(const model::ParameterBuffers* buffers, model::Ops* ops)
    : buffers_(buffers), ops_(ops) {
  const model::ParameterParts& parts = buffers->parts();
  for (const model::Parameter& parameter : buffers->layout().parameters()) {
    if (parameter.counted_elsewhere) continue;
    for (int b = 0; b < parts.counted().num_blocks(); ++b) {
      const model::BlockPart& part = parts.counted().block(b);
      const int64_t begin = std::max(parameter.offset, part.begin);
      const int64_t end = std::min(parameter.offset + parameter.num_elements(), part.end);
      if (begin >= end) continue;
      const int64_t base = parts.updated().block(b).begin;
      counted_.push_back({&parameter, b, begin - base, end - base});
    }
  }
  const model::Groups* groups = buffers->groups();
  const bool alone = groups == nullptr || groups->world == nullptr;
  sums_.resize(alone ? 1 : static_cast<size_t>(groups->world->size()));
}

GradientNormMeter::Sum GradientNormMeter::Own() const {
  Sum own = {.first_bad = kNone};
  double squares = 0;
  Wide exact = 0;
  for (const Counted& c : counted_) {
    const model::Tensor values = buffers_->UpdatedGradients(c.block).Rows(c.begin, c.end);
    const double sum = ops_->SumOfSquares(values);
    squares += sum;
    if (!std::isfinite(sum)) {
      if (own.first_bad == kNone) own.first_bad = c.parameter->index;
    } else if (buffers_->fixed_point()) {
      exact += ExactSquares(values);
    }
  }
  if (buffers_->fixed_point()) {
    own.low = static_cast<int64_t>(static_cast<uint64_t>(exact));
    own.high = static_cast<int64_t>(static_cast<uint64_t>(exact >> 64));
  } else {
    own.low = std::bit_cast<int64_t>(squares);
  }
  return own;
}

GradientNorm GradientNormMeter::Total(const std::vector<Sum>& sums) const {
  double squares = 0;
  Wide exact = 0;
  bool finite = true;
  for (const Sum& sum : sums) {
    finite = finite && sum.first_bad == kNone;
    exact += Wide{static_cast<uint64_t>(sum.high)} << 64 | static_cast<uint64_t>(sum.low);
    squares += std::bit_cast<double>(sum.low);
  }
  if (buffers_->fixed_point()) {
    squares = finite ? std::ldexp(static_cast<double>(exact), -kSquareLog2Scale)
                     : std::numeric_limits<double>::quiet_NaN();
  }
  return {.value = std::sqrt(squares), .first_non_finite = {}};
}

StatusOr<GradientNorm> GradientNormMeter::Compute() {
  const Sum own = Own();
  sums_[0] = own;
  if (sums_.size() > 1) {
    static_assert(sizeof(Sum) == 3 * sizeof(int64_t));
    CRIA_RETURN_IF_ERROR(buffers_->groups()
                             ->world
                             ->AllGather({.input = &own,
                                          .output = sums_.data(),
                                          .count = 3,
                                          .dtype = comm::DataType::kInt64})
                             .Wait());
  }
  GradientNorm norm = Total(sums_);
  int64_t first_bad = kNone;
  for (const Sum& sum : sums_) first_bad = std::min(first_bad, sum.first_bad);
  if (first_bad != kNone) {
    CRIA_ASSIGN_OR_RETURN(norm.first_non_finite, NameOf(first_bad, sums_));
  }
  return norm;
}

StatusOr<std::string> GradientNormMeter::NameOf(int64_t index, const std::vector<Sum>& sums) const {
  size_t rank = 0;
  while (sums[rank].first_bad != index) ++rank;
  std::array<char, kNameBytes> name = {};
  // Only some ranks hold the parameter, and know what it is called.
  if (const model::Parameter* parameter = Find(index)) {
    std::strncpy(name.data(), parameter->name.c_str(), kNameBytes - 1);
  }
  if (sums.size() > 1) {
    CRIA_RETURN_IF_ERROR(buffers_->groups()
                             ->world
                             ->Broadcast({.buffer = name.data(),
                                          .count = kNameBytes,
                                          .dtype = comm::DataType::kUint8,
                                          .root = static_cast<int>(rank)})
                             .Wait());
  }
  return std::string(name.data());
}

const model::Parameter* GradientNormMeter::Find(int64_t index) const {
  for (const Counted& c : counted_) {
    if (c.parameter->index == index) return c.parameter;
  }
  return nullptr;
}

}  // namespace cria::trainer
