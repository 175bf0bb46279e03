// RMSNorm forward and backward (Zhang & Sennrich, 2019), with the residual sum and the cast to the
// next GEMM's type in the same pass. Bound by memory: about 4 passes over [R, D].

#include <algorithm>
#include <cmath>

#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {
namespace {

// Sum of squares of x + delta, which goes to `sum` on the way.
template <typename Delta>
float AddRow(const float* x, const Delta* delta, float* sum, int64_t dim) {
  Vec squares{};
  float rest = 0;
  ForVectors(
      dim,
      [&](int64_t i) {
        const Vec v = Load(x + i) + Load(delta + i);
        Store(sum + i, v);
        squares += v * v;
      },
      [&](int64_t i, int64_t n) {
        for (int64_t j = i; j < i + n; ++j) {
          sum[j] = x[j] + LoadOne(delta + j);
          rest += sum[j] * sum[j];
        }
      });
  return SumLanes(squares) + rest;
}

float SquaresOfRow(const float* x, int64_t dim) {
  Vec squares{};
  float rest = 0;
  ForVectors(
      dim, [&](int64_t i) { squares += Load(x + i) * Load(x + i); },
      [&](int64_t i, int64_t n) {
        for (int64_t j = i; j < i + n; ++j) rest += x[j] * x[j];
      });
  return SumLanes(squares) + rest;
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
            for (int64_t j = i; j < i + n; ++j) StoreOne(y + j, x[j] * rstd * weight[j]);
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
  float rest = 0;
  ForVectors(
      dim, [&](int64_t i) { dots += Load(dy + i) * Load(weight + i) * Load(x + i); },
      [&](int64_t i, int64_t n) {
        for (int64_t j = i; j < i + n; ++j) rest += LoadOne(dy + j) * weight[j] * x[j];
      });
  const float dot = SumLanes(dots) + rest;
  const float along_x = rstd * rstd * rstd * dot / static_cast<float>(dim);
  ForVectors(
      dim,
      [&](int64_t i) {
        const Vec g = Load(dy + i);
        const Vec xi = Load(x + i);
        const Vec d = Load(dx + i) + (g * Load(weight + i) * rstd - xi * along_x);
        Store(dx + i, d);
        if (dx_copy != nullptr) Store(dx_copy + i, d);
        Store(dweight + i, Load(dweight + i) + g * xi * rstd);
      },
      [&](int64_t i, int64_t n) {
        for (int64_t j = i; j < i + n; ++j) {
          const float g = LoadOne(dy + j);
          dx[j] += g * weight[j] * rstd - x[j] * along_x;
          if (dx_copy != nullptr) StoreOne(dx_copy + j, dx[j]);
          dweight[j] += g * x[j] * rstd;
        }
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
