// oneDNN's own speed at a model's matrix products: the bound that training steps are held to.
//
//   GemmBaseline baseline(StepGemms(config, tokens, /*bf16=*/false));
//   std::vector<double> seconds = baseline.Run(/*num_threads=*/2);  // one run of each
//
// fp32: dnnl_sgemm on whole products, with oneDNN's own threads. bf16, where the CPU multiplies it:
// oneDNN's matmul; elsewhere the same shapes in fp32, since that is the fastest that such a CPU can
// do. Operands lie in shared buffers, warm in cache: a hard bound. Make the CPU's Ops first, which
// tell oneDNN of CRIA_CPU_ISA. Single-threaded object; threads inside.

#ifndef CRIA_TRAINER_BENCH_GEMM_BASELINE_H_
#define CRIA_TRAINER_BENCH_GEMM_BASELINE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "model/llama/config.h"

namespace cria::trainer {

// c[m,n] = op(a) op(b), row-major and dense.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool bf16 = false;      // operands
  bool bf16_out = false;  // c; bf16 operands only
  int64_t count = 1;      // times a step

  double flops() const { return 2.0 * static_cast<double>(m * n * k); }
};

// The products of one training step with weights: forward, input gradient and weight gradient of
// each layer's four matrices and of the head, each over all tokens at once. Their flops x count sum
// up to 6 x matrix parameters x tokens: attention's products are not in it.
std::vector<GemmShape> StepGemms(const model::LlamaConfig& config, int64_t tokens, bool bf16);

// Sum of flops x count.
double TotalFlops(const std::vector<GemmShape>& shapes);

class GemmBaseline {
 public:
  // `clock` stays the caller's.
  explicit GemmBaseline(std::vector<GemmShape> shapes, Clock* clock = RealClock());
  ~GemmBaseline();

  const std::vector<GemmShape>& shapes() const;

  // Runs each shape once; seconds of each, in the order of shapes().
  std::vector<double> Run(int num_threads);
  // The same, summed up with counts: a step's products.
  double RunStep(int num_threads);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_GEMM_BASELINE_H_
