// The forward matrix product c[M,N] = a[M,K] w[N,K]^T, one chain of additions for each element
// (panel_matmul.cc says why), over threads.
//
//   PanelGemm gemm;
//   gemm.Run({.a = x, .w = weight, .c = y});         // w row-major
//   gemm.Run({.a = x, .packed = packed, .c = y});    // w packed by PackPanels
//   gemm.Run({.a = dy, .w = x, .c = dw, .transpose_a = true, .transpose_w = true,
//             .accumulate = true});                  // dw += dy^T x
//
// Single-threaded object; threads inside. How the work is cut may follow the number of threads: no
// result does.

#ifndef CRIA_MODEL_CPU_PANEL_GEMM_H_
#define CRIA_MODEL_CPU_PANEL_GEMM_H_

#include <cstdint>
#include <vector>

#include "model/tensor.h"

namespace cria::model::cpu {

struct PanelGemmArgs {
  Tensor a = {};  // [M,K] fp32 or bf16, or [K,M] fp32 when transpose_a
  Tensor w = {};  // [N,K] fp32 or bf16, or [K,N] fp32 when transpose_w; undefined when packed is
  Tensor packed = {};  // a packed weight
  Tensor c = {};       // [M,N] fp32 or bf16
  bool transpose_a = false, transpose_w = false;
  bool accumulate = false;  // c += instead of c =, of the finished chain
  float scale = 1;          // of the chain
};

class PanelGemm {
 public:
  void Run(const PanelGemmArgs& args);

  // Scratch held, in bytes: grows to the largest product seen, then stays.
  int64_t workspace_bytes() const;
  // What it will be for products of up to `rows` rows and K up to `depth`.
  static int64_t PlanBytes(int64_t rows, int64_t depth);

 private:
  std::vector<std::vector<float>> scratch_;  // by thread
};

}  // namespace cria::model::cpu

#endif  // CRIA_MODEL_CPU_PANEL_GEMM_H_
