// RMSNorm forward and backward (Zhang & Sennrich, 2019), with the residual sum and the cast to the
// next GEMM's type in the same pass. Bound by memory: about 4 passes over [R, D].

#include <algorithm>
#include <cmath>

#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {
namespace {

// The sum of squares of `value(column)`, a vector of a row of dim columns, and of
// `rest(column, lanes)`, zero beyond the row. One chain of operations for whatever a row comes
// from: what is computed again must have the same bits.
template <typename Value, typename Rest>
float SumOfSquares(int64_t dim, Value&& value, Rest&& rest) {
  Vec squares{};
  const auto add = [&](Vec v) { squares += v * v; };
  ForVectors(
      dim, [&](int64_t i) { add(value(i)); }, [&](int64_t i, int64_t n) { add(rest(i, n)); });
  return SumLanes(squares);
}

// Sum of squares of x + delta, which goes to `sum` on the way.
template <typename Delta>
float AddRow(const float* x, const Delta* delta, float* sum, int64_t dim) {
  return SumOfSquares(
      dim,
      [&](int64_t i) {
        const Vec v = Load(x + i) + Load(delta + i);
        Store(sum + i, v);
        return v;
      },
      [&](int64_t i, int64_t n) {
        const Vec v = LoadPartial(x + i, n) + LoadPartial(delta + i, n);
        StorePartial(sum + i, v, n);
        return v;
      });
}

float SquaresOfRow(const float* x, int64_t dim) {
  return SumOfSquares(
      dim, [&](int64_t i) { return Load(x + i); },
      [&](int64_t i, int64_t n) { return LoadPartial(x + i, n); });
}

}  // namespace

void RmsNormForward(const RmsNormForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t dim = args.x.dim(1);
  const float* weight = args.weight.f32();
  for (int64_t row = begin; row < end; ++row) {
    const float* x = args.x.f32() + row * dim;
    float squares = 0;
    if (args.delta.defined()) {
      float* sum = args.sum.f32() + row * dim;
      WithType(args.delta, [&](auto* delta) { squares = AddRow(x, delta + row * dim, sum, dim); });
      x = sum;
    } else {
      squares = SquaresOfRow(x, dim);
    }
    const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(dim) + args.eps);
    args.rstd.f32()[row] = rstd;
    WithType(args.y, [&](auto* y_all) {
      auto* y = y_all + row * dim;
      ForVectors(
          dim, [&](int64_t i) { Store(y + i, Load(x + i) * rstd * Load(weight + i)); },
          [&](int64_t i, int64_t n) {
            StorePartial(y + i, LoadPartial(x + i, n) * rstd * LoadPartial(weight + i, n), n);
          });
    });
  }
}

namespace {

// One row: dx += rstd * (w dy - x rstd^2 mean(w dy x)), dweight += dy x rstd.
template <typename Dy>
void BackwardRow(const Dy* dy, const float* x, const float* weight, float rstd, float* dx,
                 BF16* dx_copy, float* dweight, int64_t dim) {
  Vec dots{};
  ForVectors(
      dim, [&](int64_t i) { dots += Load(dy + i) * Load(weight + i) * Load(x + i); },
      [&](int64_t i, int64_t n) {
        dots += LoadPartial(dy + i, n) * LoadPartial(weight + i, n) * LoadPartial(x + i, n);
      });
  const float along_x = rstd * rstd * rstd * SumLanes(dots) / static_cast<float>(dim);
  const auto new_dx = [&](Vec g, Vec w, Vec xi, Vec d) {
    return d + (g * w * rstd - xi * along_x);
  };
  const auto new_dweight = [&](Vec g, Vec xi, Vec d) { return d + g * xi * rstd; };
  ForVectors(
      dim,
      [&](int64_t i) {
        const Vec g = Load(dy + i);
        const Vec xi = Load(x + i);
        const Vec d = new_dx(g, Load(weight + i), xi, Load(dx + i));
        Store(dx + i, d);
        if (dx_copy != nullptr) Store(dx_copy + i, d);
        Store(dweight + i, new_dweight(g, xi, Load(dweight + i)));
      },
      [&](int64_t i, int64_t n) {
        const Vec g = LoadPartial(dy + i, n);
        const Vec xi = LoadPartial(x + i, n);
        const Vec d = new_dx(g, LoadPartial(weight + i, n), xi, LoadPartial(dx + i, n));
        StorePartial(dx + i, d, n);
        if (dx_copy != nullptr) StorePartial(dx_copy + i, d, n);
        StorePartial(dweight + i, new_dweight(g, xi, LoadPartial(dweight + i, n)), n);
      });
}

}  // namespace

void RmsNormBackward(const RmsNormBackwardKernelArgs& args, int64_t begin, int64_t end) {
  const RmsNormBackwardArgs& op = args.op;
  const int64_t num_rows = op.x.dim(0);
  const int64_t dim = op.x.dim(1);
  for (int64_t block = begin; block < end; ++block) {
    float* dweight = args.partial_dweight + block * dim;
    std::fill_n(dweight, dim, 0.0f);
    const int64_t last = std::min(num_rows, (block + 1) * kRowsPerBlock);
    for (int64_t row = block * kRowsPerBlock; row < last; ++row) {
      BF16* dx_copy = op.dx_copy.defined() ? op.dx_copy.bf16() + row * dim : nullptr;
      WithType(op.dy, [&](auto* dy) {
        BackwardRow(dy + row * dim, op.x.f32() + row * dim, op.weight.f32(), op.rstd.f32()[row],
                    op.dx.f32() + row * dim, dx_copy, dweight, dim);
      });
    }
  }
}

}  // namespace cria::model::cpu::CRIA_ISA
