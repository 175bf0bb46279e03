#include "model/cpu/kernels.h"

#include <algorithm>

#include "base/cpu.h"

namespace cria::model::cpu {

namespace generic {
const KernelTable& Table();
}
namespace avx2 {
const KernelTable& Table();
}
namespace avx512 {
const KernelTable& Table();
}

const KernelTable& Kernels() {
  switch (ActiveIsa()) {
    case Isa::kAvx512:
      return avx512::Table();
    case Isa::kAvx2:
      return avx2::Table();
    case Isa::kGeneric:
      break;
  }
  return generic::Table();
}

// The forward chunk's q, out; a tile of k, k transposed, v; scores; running maximum and sum.
int64_t AttentionForwardScratch(const AttentionForwardArgs& args) {
  const int64_t padded = AttentionPad(args.head_dim);
  return 2 * kAttentionChunk * padded + 3 * kAttentionTile * padded +
         kAttentionTile * kAttentionTile + 2 * kAttentionChunk;
}

// The group's q, dout, dq and delta; tiles of k, k and v transposed, dk, dv; p and ds.
int64_t AttentionBackwardScratch(const AttentionForwardArgs& args) {
  const int64_t padded = AttentionPad(args.head_dim);
  const int64_t group_rows = args.heads / args.kv_heads * args.time;
  return 3 * group_rows * padded + AttentionPad(group_rows) + 5 * kAttentionTile * padded +
         2 * kAttentionTile * kAttentionTile;
}

// Few rows: a as fp32. Many: a block of A, panels of B, a panel that c does not fill, and sums of a
// chunk of columns of a bf16 c. (12 x 2 is the widest register tile, so two panels.)
int64_t PanelScratch(int64_t rows, int64_t k) {
  const int64_t few = rows <= kPanelFewRows ? rows * PackedDepth(DType::kBF16, k) : 0;
  const int64_t many = rows * (kPanelDepth + kPanelColumns + kPanelsPerChunk * kPanelColumns) +
                       2 * kPanelDepth * kPanelColumns;
  return std::max(few, many);
}

}  // namespace cria::model::cpu
