// The kernels' declarations inside namespace CRIA_ISA, for the files that define them.

#ifndef CRIA_MODEL_CPU_KERNELS_ISA_H_
#define CRIA_MODEL_CPU_KERNELS_ISA_H_

#include "model/cpu/kernels.h"
#include "model/cpu/vec.h"

namespace cria::model::cpu::CRIA_ISA {

#define CRIA_KERNEL_DECLARATION(Name, Args) void Name(const Args& args, int64_t begin, int64_t end);
CRIA_CPU_KERNELS(CRIA_KERNEL_DECLARATION)
#undef CRIA_KERNEL_DECLARATION

const KernelTable& Table();

// Calls body(p) with p the elements of x as float* or BF16*.
template <typename Body>
inline void WithType(const Tensor& x, Body&& body) {
  if (x.dtype() == DType::kBF16) {
    body(static_cast<BF16*>(x.data()));
  } else {
    body(static_cast<float*>(x.data()));
  }
}

}  // namespace cria::model::cpu::CRIA_ISA

#endif  // CRIA_MODEL_CPU_KERNELS_ISA_H_
