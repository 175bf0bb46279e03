// The CPU backend: oneDNN for matrix products, our own vectorised kernels for the rest, OpenMP
// threads.
//
//   std::unique_ptr<Ops> ops = cpu::NewCpuOps();
//
// See model/ops.h for the contract. Scratch memory grows during the first step and then stays;
// WorkspaceBytes tells what the operations of a model need.

#ifndef CRIA_MODEL_CPU_CPU_OPS_H_
#define CRIA_MODEL_CPU_CPU_OPS_H_

#include <memory>

#include "model/ops.h"

namespace cria::model::cpu {

std::unique_ptr<Ops> NewCpuOps();

}  // namespace cria::model::cpu

#endif  // CRIA_MODEL_CPU_CPU_OPS_H_
