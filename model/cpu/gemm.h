// Matrix products of the CPU backend, by oneDNN.
//
// A product is cut into tiles of rows of C by its sizes alone, and each tile is one single-threaded
// call: so results do not depend on the number of threads. Two paths:
//
//   kSgemm       dnnl_sgemm. bf16 operands are widened, exactly, to fp32 scratch: the same
//   products, fp32
//                sums. For CPUs without AVX-512.
//   kPrimitives  matmul primitives, fp32 or bf16. Weights are packed into the layout that a
//   primitive
//                likes once after each WeightsChanged. For AVX-512; a product that the library has
//                no kernel for (bf16 on a CPU without it) takes the other path.
//
// The forward product of a weight (a w^T) goes to PanelGemm instead, whose bits don't depend on the
// number of rows: in fp32 always, in bf16 where kSgemm would widen. So does every product that is
// asked for as a chain.
//
// Single-threaded object; threads inside.

#ifndef CRIA_MODEL_CPU_GEMM_H_
#define CRIA_MODEL_CPU_GEMM_H_

#include <memory>

#include "model/ops.h"

namespace cria::model::cpu {

class Gemm {
 public:
  enum class Path { kAuto, kSgemm, kPrimitives };  // kAuto: by ActiveIsa()

  explicit Gemm(Path path = Path::kAuto);
  ~Gemm();

  void Run(const MatmulArgs& args);
  void RunPacked(const MatmulPackedArgs& args);
  // Operands marked keep_b may have changed.
  void WeightsChanged();

  // Scratch held, in bytes: grows to the largest product seen, then stays.
  int64_t workspace_bytes() const;
  // What it will be for the products of such a training step.
  static int64_t PlanBytes(const StepShape& shape);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cria::model::cpu

#endif  // CRIA_MODEL_CPU_GEMM_H_
