#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {

const KernelTable& Table() {
  static constexpr KernelTable kTable = {
#define CRIA_KERNEL_ENTRY(Name, Args) &Name,
      CRIA_CPU_KERNELS(CRIA_KERNEL_ENTRY)
#undef CRIA_KERNEL_ENTRY
  };
  return kTable;
}

}  // namespace cria::model::cpu::CRIA_ISA
