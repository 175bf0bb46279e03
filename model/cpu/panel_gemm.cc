#include "model/cpu/panel_gemm.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/parallel.h"
#include "model/cpu/kernels.h"

namespace cria::model::cpu {
namespace {

int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }

// Multiply-adds that one thread does in less time than two take to meet.
constexpr int64_t kSmallWork = int64_t{1} << 17;

// Rows of a tile: equal parts of at most kPanelBlockRows.
int64_t TileRows(int64_t rows) { return CeilDiv(rows, CeilDiv(rows, kPanelBlockRows)); }

}  // namespace

void PanelGemm::Run(const PanelGemmArgs& args) {
  const int64_t m = args.c.dim(0), n = args.c.dim(1), k = args.a.dim(args.transpose_a ? 0 : 1);
  CRIA_CHECK_EQ(args.a.dim(args.transpose_a ? 1 : 0), m);
  CRIA_CHECK(args.w.defined() != args.packed.defined(), "a weight row-major or packed");
  if (args.w.defined()) {
    const int rows = args.transpose_w ? 1 : 0;
    CRIA_CHECK(args.w.dim(rows) == n && args.w.dim(1 - rows) == k, args.w.ToString());
  }
  if (m == 0 || n == 0) return;
  const int64_t panels = CeilDiv(n, kPanelColumns);
  const int64_t tile_rows = TileRows(m);
  const int64_t row_tiles = CeilDiv(m, tile_rows);
  // Columns are cut so that the tiles are a multiple of the threads.
  const int64_t threads = m * n * k <= kSmallWork ? 1 : NumThreads();
  const int64_t column_tiles = std::min(panels, threads / std::gcd(row_tiles, threads));
  const int64_t floats = PanelScratch(tile_rows, k);
  while (static_cast<int>(scratch_.size()) < NumThreads()) scratch_.emplace_back();
  ParallelFor(row_tiles * column_tiles, [&](int64_t tile) {
    std::vector<float>& scratch = scratch_[static_cast<size_t>(ThreadIndex())];
    if (static_cast<int64_t>(scratch.size()) < floats) {
      scratch = {};  // first, so that old and new are never held together
      scratch = std::vector<float>(static_cast<size_t>(floats));
    }
    // Neighbours share rows, so that a block of A is packed by few threads.
    const int64_t row = tile / column_tiles * tile_rows;
    const int64_t last = std::min(m, row + tile_rows);
    const int64_t part = tile % column_tiles;
    Kernels().PanelMatmul(
        {.a = args.transpose_a ? args.a.Columns(row, last) : args.a.Rows(row, last),
         .w = args.w,
         .packed = args.packed,
         .c = args.c.Rows(row, last),
         .transpose_a = args.transpose_a,
         .transpose_w = args.transpose_w,
         .accumulate = args.accumulate,
         .scale = args.scale,
         .scratch = scratch.data()},
        panels * part / column_tiles, panels * (part + 1) / column_tiles);
  });
}

int64_t PanelGemm::workspace_bytes() const {
  int64_t bytes = 0;
  for (const auto& s : scratch_) bytes += static_cast<int64_t>(s.size() * sizeof(float));
  return bytes;
}

int64_t PanelGemm::PlanBytes(int64_t rows, int64_t depth) {
  return static_cast<int64_t>(sizeof(float)) * NumThreads() *
         std::max(PanelScratch(std::min(rows, kPanelFewRows), depth),
                  PanelScratch(std::min(rows, kPanelBlockRows), depth));
}

}  // namespace cria::model::cpu
