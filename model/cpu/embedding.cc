// Embedding look-up and its gradient. The gradient is cut by columns: every thread walks all tokens
// in order over its own columns, so that a token that occurs twice is summed in one fixed order.

#include "model/cpu/fixed_point.h"
#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {
namespace {

// The table's row of each token, or -1 of a token in another part of the vocabulary.
int64_t TableRow(int64_t token, int64_t first_token, int64_t rows) {
  const int64_t row = token - first_token;
  return row >= 0 && row < rows ? row : -1;
}

}  // namespace

void EmbeddingForward(const EmbeddingForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t dim = args.out.dim(1);
  WithType(args.out, [&](auto* out) {
    for (int64_t row = begin; row < end; ++row) {
      auto* to = out + row * args.out.stride(0);
      const int64_t at = TableRow(args.tokens.i32()[row], args.first_token, args.table.dim(0));
      if (at < 0) {
        std::memset(to, 0, static_cast<size_t>(dim) * sizeof(*to));
        continue;
      }
      const float* from = args.table.f32() + at * dim;
      ForVectors(
          dim, [&](int64_t i) { Store(to + i, Load(from + i)); },
          [&](int64_t i, int64_t n) {
            for (int64_t j = i; j < i + n; ++j) StoreOne(to + j, from[j]);
          });
    }
  });
}

void EmbeddingBackward(const EmbeddingBackwardKernelArgs& args, int64_t begin, int64_t end) {
  const EmbeddingBackwardArgs& op = args.op;
  const int64_t dim = op.dout.dim(1);
  const bool fixed = op.dtable.dtype() == DType::kI64;
  bool all_fit = true;
  for (int64_t row = 0; row < op.dout.dim(0); ++row) {
    const int64_t at = TableRow(op.tokens.i32()[row], op.first_token, op.dtable.dim(0));
    if (at < 0) continue;
    const float* from = op.dout.f32() + row * op.dout.stride(0) + begin;
    if (fixed) {
      all_fit &= AddFixedRow(from, op.dtable.i64() + at * dim + begin, end - begin,
                             PowerOfTwo(op.log2_scale));
      continue;
    }
    float* to = op.dtable.f32() + at * dim + begin;
    ForVectors(
        end - begin, [&](int64_t i) { Store(to + i, Load(to + i) + Load(from + i)); },
        [&](int64_t i, int64_t n) {
          for (int64_t j = i; j < i + n; ++j) to[j] += from[j];
        });
  }
  if (!all_fit) args.all_fit->store(false, std::memory_order_relaxed);
}

}  // namespace cria::model::cpu::CRIA_ISA
