// Matrix products of the CPU backend, by oneDNN.
//
// A product is cut into tiles of rows of C by its sizes alone, and each tile is one single-threaded
// call: so results do not depend on the number of threads. bf16 operands go to oneDNN's bf16 matmul
// where the CPU multiplies bf16; elsewhere they are widened (exactly) to fp32 scratch and take the
// fp32 path: the same products, fp32 sums. Single-threaded object; threads inside.

#ifndef CRIA_MODEL_CPU_GEMM_H_
#define CRIA_MODEL_CPU_GEMM_H_

#include <memory>

#include "model/ops.h"

namespace cria::model::cpu {

class Gemm {
 public:
  Gemm();
  ~Gemm();

  void Run(const MatmulArgs& args);

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
