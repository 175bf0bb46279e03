// Copies with conversion between fp32 and bf16, and sums of squares.

#include <algorithm>
#include <cstring>

#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {

void Copy(const CopyKernelArgs& args, int64_t begin, int64_t end) {
  const int64_t columns = args.from.dim(1);
  if (args.from.dtype() == args.to.dtype()) {
    const int64_t bytes = DTypeBytes(args.to.dtype());
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(static_cast<char*>(args.to.data()) + row * args.to.stride(0) * bytes,
                  static_cast<const char*>(args.from.data()) + row * args.from.stride(0) * bytes,
                  static_cast<size_t>(columns * bytes));
    }
    return;
  }
  WithType(args.from, [&](auto* from_all) {
    WithType(args.to, [&](auto* to_all) {
      for (int64_t row = begin; row < end; ++row) {
        const auto* from = from_all + row * args.from.stride(0);
        auto* to = to_all + row * args.to.stride(0);
        ForVectors(
            columns, [&](int64_t i) { Store(to + i, Load(from + i)); },
            [&](int64_t i, int64_t n) {
              for (int64_t j = i; j < i + n; ++j) StoreOne(to + j, LoadOne(from + j));
            });
      }
    });
  });
}

void ScaledAdd(const ScaledAddKernelArgs& args, int64_t begin, int64_t end) {
  const int64_t columns = args.from.dim(1);
  WithType(args.to, [&](auto* to_all) {
    for (int64_t row = begin; row < end; ++row) {
      const float* from = args.from.f32() + row * args.from.stride(0);
      auto* to = to_all + row * args.to.stride(0);
      ForVectors(
          columns,
          [&](int64_t i) {
            const Vec product = Load(from + i) * args.scale;
            Store(to + i, args.accumulate ? Load(to + i) + product : product);
          },
          [&](int64_t i, int64_t n) {
            const Vec product = LoadPartial(from + i, n) * args.scale;
            StorePartial(to + i, args.accumulate ? LoadPartial(to + i, n) + product : product, n);
          });
    }
  });
}

void SumOfSquares(const SumOfSquaresKernelArgs& args, int64_t begin, int64_t end) {
  // Independent sums, so that the additions' latency is hidden; double holds any fp32 square.
  constexpr int64_t kSums = 8;
  for (int64_t block = begin; block < end; ++block) {
    const int64_t first = block * kElementsPerBlock;
    const int64_t last = std::min(args.n, first + kElementsPerBlock);
    double sums[kSums] = {};
    int64_t i = first;
    for (; i + kSums <= last; i += kSums) {
      for (int64_t j = 0; j < kSums; ++j) {
        const double x = args.x[i + j];
        sums[j] += x * x;
      }
    }
    for (; i < last; ++i) sums[0] += static_cast<double>(args.x[i]) * args.x[i];
    double total = 0;
    for (const double sum : sums) total += sum;
    args.partial[block] = total;
  }
}

}  // namespace cria::model::cpu::CRIA_ISA
