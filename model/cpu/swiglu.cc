// SwiGLU (Shazeer, 2020): act = silu(gate) * up. Bound by memory: 3 passes forward, 5 backward.

#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {

void SwigluForward(const SwigluForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t ffn = args.act.dim(1);
  WithType(args.act, [&](auto* act_all) {
    for (int64_t row = begin; row < end; ++row) {
      auto* gate = static_cast<decltype(act_all)>(args.gate_up.data()) + row * 2 * ffn;
      auto* up = gate + ffn;
      auto* act = act_all + row * ffn;
      ForVectors(
          ffn,
          [&](int64_t i) {
            const Vec g = Load(gate + i);
            Store(act + i, g * Sigmoid(g) * Load(up + i));
          },
          [&](int64_t i, int64_t n) {
            const Vec g = LoadPartial(gate + i, n);
            StorePartial(act + i, g * Sigmoid(g) * LoadPartial(up + i, n), n);
          });
    }
  });
}

void SwigluBackward(const SwigluBackwardArgs& args, int64_t begin, int64_t end) {
  const int64_t ffn = args.dact.dim(1);
  WithType(args.dact, [&](auto* dact_all) {
    using Pointer = decltype(dact_all);
    for (int64_t row = begin; row < end; ++row) {
      auto* gate = static_cast<Pointer>(args.gate_up.data()) + row * 2 * ffn;
      auto* up = gate + ffn;
      auto* dact = dact_all + row * ffn;
      auto* dgate = static_cast<Pointer>(args.dgate_up.data()) + row * 2 * ffn;
      auto* dup = dgate + ffn;
      auto* act = args.act.defined() ? static_cast<Pointer>(args.act.data()) + row * ffn : nullptr;
      // d silu(g)/dg = s + g s (1 - s), with s the sigmoid of g.
      const auto step = [&](Vec g, Vec u, Vec d, auto&& store) {
        const Vec s = Sigmoid(g);
        const Vec silu = g * s;
        store(d * u * (s + silu * (1.0f - s)), d * silu, silu * u);
      };
      ForVectors(
          ffn,
          [&](int64_t i) {
            step(Load(gate + i), Load(up + i), Load(dact + i), [&](Vec dg, Vec du, Vec a) {
              Store(dgate + i, dg);
              Store(dup + i, du);
              if (act != nullptr) Store(act + i, a);
            });
          },
          [&](int64_t i, int64_t n) {
            step(LoadPartial(gate + i, n), LoadPartial(up + i, n), LoadPartial(dact + i, n),
                 [&](Vec dg, Vec du, Vec a) {
                   StorePartial(dgate + i, dg, n);
                   StorePartial(dup + i, du, n);
                   if (act != nullptr) StorePartial(act + i, a, n);
                 });
          });
    }
  });
}

}  // namespace cria::model::cpu::CRIA_ISA
