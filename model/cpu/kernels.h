// The CPU backend's inner loops, one table of functions per instruction set.
//
// A kernel does the items [begin, end) of an operation: rows, blocks or heads, as named below.
// CpuOps (cpu_ops.cc) cuts an operation into items by sizes alone and spreads them over threads.
// Each kernel is in the file named after it and compiled once per set; Kernels() is the table of
// ActiveIsa(). Thread-safe as long as two calls have no items in common.

#ifndef CRIA_MODEL_CPU_KERNELS_H_
#define CRIA_MODEL_CPU_KERNELS_H_

#include <atomic>
#include <cstdint>

#include "model/ops.h"

namespace cria::model::cpu {

// Rows a block of the kernels that sum over rows; partial sums are added in the order of blocks.
inline constexpr int64_t kRowsPerBlock = 64;
// Elements a block of elementwise kernels and of sums.
inline constexpr int64_t kElementsPerBlock = 16384;

// Items: blocks of kRowsPerBlock rows; block i's sum over rows goes to partial_dweight + i*D.
struct RmsNormBackwardKernelArgs {
  const RmsNormBackwardArgs& op;
  float* partial_dweight;
};

// Items: query chunks of a head; scratch per thread, AttentionForwardScratch floats.
struct AttentionForwardKernelArgs {
  const AttentionForwardArgs& op;
  float* scratch;  // of the calling thread
};
// Items: (sequence, kv head).
struct AttentionBackwardKernelArgs {
  const AttentionBackwardArgs& op;
  float* scratch;  // of the calling thread
};

// Items: elements. to = from.
struct CopyKernelArgs {
  const Tensor& from;
  const Tensor& to;
};

// Items: rows. to = scale * from, or added to `to`.
struct ScaledAddKernelArgs {
  const Tensor& from;  // fp32
  const Tensor& to;
  float scale;
  bool accumulate;
};

// Items: panels of kPanelColumns columns of c, for all rows of a. c = a w^T, with w row-major
// (`packed` undefined) or packed. At most kPanelBlockRows rows. See PanelGemmArgs.
struct PanelMatmulKernelArgs {
  Tensor a;       // [M,K] fp32 or bf16, or [K,M] fp32
  Tensor w;       // [N,K] fp32 or bf16, or [K,N] fp32, or undefined
  Tensor packed;  // PackedElements, or undefined: then nothing is transposed, scaled or added to
  Tensor c;       // [M,N] fp32 or bf16
  bool transpose_a = false, transpose_w = false;
  bool accumulate = false;
  float scale = 1;
  float* scratch;  // of the calling thread, PanelScratch floats
};

// Items: rows of w; row r becomes row first_row + r of the packed weight.
struct PackPanelsKernelArgs {
  const Tensor& w;  // [n,K], of packed's type
  const Tensor& packed;
  int64_t first_row;
};

// Items: columns. `all_fit` becomes false where a number does not fit fixed point.
struct EmbeddingBackwardKernelArgs {
  const EmbeddingBackwardArgs& op;
  std::atomic<bool>* all_fit;
};
// Items: rows.
struct AddFixedKernelArgs {
  const AddFixedArgs& op;
  std::atomic<bool>* all_fit;
};

// Items: blocks of kElementsPerBlock; block i's sum goes to partial[i].
struct SumOfSquaresKernelArgs {
  const float* x;
  int64_t n;
  double* partial;
};

#define CRIA_CPU_KERNELS(X)                            \
  X(RmsNormForward, RmsNormForwardArgs) /* rows */     \
  X(RmsNormBackward, RmsNormBackwardKernelArgs)        \
  X(Rope, RopeArgs) /* rows */                         \
  X(AttentionForward, AttentionForwardKernelArgs)      \
  X(StoreKeyValues, StoreKeyValuesArgs) /* rows */     \
  X(AttentionBackward, AttentionBackwardKernelArgs)    \
  X(SwigluForward, SwigluForwardArgs)       /* rows */ \
  X(SwigluBackward, SwigluBackwardArgs)     /* rows */ \
  X(EmbeddingForward, EmbeddingForwardArgs) /* rows */ \
  X(EmbeddingBackward, EmbeddingBackwardKernelArgs)    \
  X(Add, AddArgs) /* rows */                           \
  X(AddFixed, AddFixedKernelArgs)                      \
  X(FixedToFloat, FixedToFloatArgs)   /* rows */       \
  X(CrossEntropy, CrossEntropyArgs)   /* rows */       \
  X(LogitStats, LogitStatsArgs)       /* rows */       \
  X(LogitGradient, LogitGradientArgs) /* rows */       \
  X(AdamW, AdamWArgs)                 /* elements */   \
  X(Copy, CopyKernelArgs)             /* rows */       \
  X(ScaledAdd, ScaledAddKernelArgs)   /* rows */       \
  X(SumOfSquares, SumOfSquaresKernelArgs)              \
  X(PanelMatmul, PanelMatmulKernelArgs)                \
  X(PackPanels, PackPanelsKernelArgs)                  \
  X(PackedEmbedding, PackedEmbeddingArgs) /* rows */

struct KernelTable {
#define CRIA_KERNEL_POINTER(Name, Args) void (*Name)(const Args& args, int64_t begin, int64_t end);
  CRIA_CPU_KERNELS(CRIA_KERNEL_POINTER)
#undef CRIA_KERNEL_POINTER
};

// Queries per item of the attention kernels and the size of their tiles.
inline constexpr int64_t kAttentionChunk = 256;
inline constexpr int64_t kAttentionTile = 64;

// Rows of scratch are padded to the widest vector of any instruction set.
constexpr int64_t AttentionPad(int64_t n) { return (n + 15) / 16 * 16; }

// Floats of scratch that one thread needs for an attention kernel.
int64_t AttentionForwardScratch(const AttentionForwardArgs& args);
int64_t AttentionBackwardScratch(const AttentionForwardArgs& args);

// Panels of the forward matrix product (panel_matmul.cc).
inline constexpr int64_t kPanelColumns = 16;
inline constexpr int64_t kPanelDepth = 320;      // of K at a time at most, of many rows
inline constexpr int64_t kPanelBlockRows = 240;  // with kPanelDepth floats each: half of an L2
inline constexpr int64_t kPanelFewRows = 6;      // up to here packed panels are streamed
inline constexpr int64_t kPanelsPerChunk = 32;   // columns at a time whose sums wait as fp32

// Numbers along K that a packed weight holds for each column.
constexpr int64_t PackedDepth(DType type, int64_t k) {
  return type == DType::kBF16 ? (k + 1) / 2 * 2 : k;
}

// Floats of scratch that one thread needs for a block of `rows` rows of such a product.
int64_t PanelScratch(int64_t rows, int64_t k);

// The table of ActiveIsa().
const KernelTable& Kernels();

}  // namespace cria::model::cpu

#endif  // CRIA_MODEL_CPU_KERNELS_H_
