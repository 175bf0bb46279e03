// Sums of matrices: in fp32, and in fixed point, where no order is better than another.

#include "model/cpu/fixed_point.h"
#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {

void Add(const AddArgs& args, int64_t begin, int64_t end) {
  WithType(args.b, [&](auto* all_b) {
    for (int64_t row = begin; row < end; ++row) {
      const float* a = args.a.f32() + row * args.a.stride(0);
      const auto* b = all_b + row * args.b.stride(0);
      float* out = args.out.f32() + row * args.out.stride(0);
      ForVectors(
          args.a.dim(1), [&](int64_t i) { Store(out + i, Load(a + i) + Load(b + i)); },
          [&](int64_t i, int64_t n) {
            for (int64_t j = i; j < i + n; ++j) out[j] = a[j] + LoadOne(b + j);
          });
    }
  });
}

void AddFixed(const AddFixedKernelArgs& args, int64_t begin, int64_t end) {
  const AddFixedArgs& op = args.op;
  bool all_fit = true;
  for (int64_t row = begin; row < end; ++row) {
    all_fit &=
        AddFixedRow(op.from.f32() + row * op.from.stride(0), op.to.i64() + row * op.to.stride(0),
                    op.from.dim(1), PowerOfTwo(op.log2_scale));
  }
  if (!all_fit) args.all_fit->store(false, std::memory_order_relaxed);
}

void FixedToFloat(const FixedToFloatArgs& args, int64_t begin, int64_t end) {
  WithType(args.to, [&](auto* to) {
    for (int64_t row = begin; row < end; ++row) {
      FixedToFloatRow(args.from.i64() + row * args.from.stride(0), to + row * args.to.stride(0),
                      args.from.dim(1), PowerOfTwo(-args.log2_scale));
    }
  });
}

}  // namespace cria::model::cpu::CRIA_ISA
