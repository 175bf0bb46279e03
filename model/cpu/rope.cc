// Rotary position embedding (Su et al., 2021) in Hugging Face's order: pairs (i, i + K/2). The
// tables come in fp32, computed in double (model/llama/rope_table.h): angles in bf16 would be wrong
// beyond 256.

#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {
namespace {

template <typename T>
void RotateHead(T* x, const float* cosines, const float* sines, float sign, int64_t half) {
  const auto rotate = [&](Vec a, Vec b, Vec c, Vec s, auto&& store) {
    store(a * c - b * (s * sign), b * c + a * (s * sign));
  };
  ForVectors(
      half,
      [&](int64_t i) {
        rotate(Load(x + i), Load(x + half + i), Load(cosines + i), Load(sines + i),
               [&](Vec first, Vec second) {
                 Store(x + i, first);
                 Store(x + half + i, second);
               });
      },
      [&](int64_t i, int64_t n) {
        rotate(LoadPartial(x + i, n), LoadPartial(x + half + i, n), LoadPartial(cosines + i, n),
               LoadPartial(sines + i, n), [&](Vec first, Vec second) {
                 StorePartial(x + i, first, n);
                 StorePartial(x + half + i, second, n);
               });
      });
}

}  // namespace

void Rope(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t half = args.head_dim / 2;
  const int64_t num_heads = args.x.dim(1) / args.head_dim;
  const float sign = args.inverse ? -1.0f : 1.0f;
  WithType(args.x, [&](auto* x) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t position = args.positions.i32()[row];
      const float* cosines = args.cosines.f32() + position * half;
      const float* sines = args.sines.f32() + position * half;
      for (int64_t head = 0; head < num_heads; ++head) {
        RotateHead(x + row * args.x.stride(0) + head * args.head_dim, cosines, sines, sign, half);
      }
    }
  });
}

}  // namespace cria::model::cpu::CRIA_ISA
