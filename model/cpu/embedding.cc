// Embedding look-up and its gradient. The gradient is cut by columns: every thread walks all tokens
// in order over its own columns, so that a token that occurs twice is summed in one fixed order.

#include <cstring>

#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {

void EmbeddingForward(const EmbeddingForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t dim = args.out.dim(1);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t token = args.tokens.i32()[row];
    std::memcpy(args.out.f32() + row * dim, args.table.f32() + token * dim,
                static_cast<size_t>(dim) * sizeof(float));
  }
}

void EmbeddingBackward(const EmbeddingBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t dim = args.dout.dim(1);
  for (int64_t row = 0; row < args.dout.dim(0); ++row) {
    const int64_t token = args.tokens.i32()[row];
    const float* from = args.dout.f32() + row * dim + begin;
    float* to = args.dtable.f32() + token * dim + begin;
    ForVectors(
        end - begin, [&](int64_t i) { Store(to + i, Load(to + i) + Load(from + i)); },
        [&](int64_t i, int64_t n) {
          for (int64_t j = i; j < i + n; ++j) to[j] += from[j];
        });
  }
}

}  // namespace cria::model::cpu::CRIA_ISA
