// c[M,N] = a[M,K] w[N,K]^T as one chain of additions along K for each element:
//
//   c = fma(a[K-1], w[K-1], ... fma(a[1], w[1], fma(a[0], w[0], 0)))
//
// Nothing else of the sizes, the tiles or the threads enters the result: a row of c is the same
// bits in a batch of one and of a thousand, and in fp32 on every CPU with fused multiply-add. That
// is what makes decoding token by token equal to the training forward pass.
//
// Columns of c are computed in panels of kPanelColumns. Few rows (decoding): panels are streamed
// from memory once, at the memory's speed. More rows: the usual three levels (Goto and van de
// Geijn, 2008): a block of A, rows interleaved, stays in L2; a panel of B, kPanelDepth deep, in L1;
// a tile of C in registers.
//
// A packed weight of fp32 is [panel][k][16 columns]. Of bf16, two consecutive k of a column share a
// 32-bit word, [panel][k / 2][16 columns][2]: a shift and a mask widen both, and the dot-product
// instructions for bf16 want the same order.

#include <algorithm>

#include "model/cpu/kernels_isa.h"

namespace cria::model::cpu::CRIA_ISA {
namespace {

constexpr int kVectorsPerPanel = kPanelColumns / kLanes;
// The tile of C in registers: 12 x 2, 6 x 2 and 2 x 4 vectors of 32, 16 and 16 registers.
#if defined(__AVX512F__)
constexpr int kRegisterRows = 12, kRegisterPanels = 2;
#elif defined(__AVX2__)
constexpr int kRegisterRows = 6, kRegisterPanels = 1;
#else
constexpr int kRegisterRows = 2, kRegisterPanels = 1;
#endif

constexpr uint32_t kHighHalf = 0xffff0000u;

VecU LoadWords(const uint32_t* p) {
  VecU v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

// ---- packing ----

// Four rows of four numbers, transposed, as fp32.
template <typename T>
[[gnu::always_inline]] inline void Transpose4x4(const T* from, int64_t stride, float* to,
                                                int64_t to_stride) {
  __m128 rows[4];
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, float>) {
      rows[i] = _mm_loadu_ps(from + i * stride);
    } else {
      const auto* p = reinterpret_cast<const __m128i*>(from + i * stride);
      rows[i] = _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64(p)));
    }
  }
  _MM_TRANSPOSE4_PS(rows[0], rows[1], rows[2], rows[3]);
  for (int k = 0; k < 4; ++k) _mm_storeu_ps(to + k * to_stride, rows[k]);
}

// to[k][16] = w[column + j][k0 + k] as fp32, zeros for columns that w does not have.
template <typename T>
void TransposePanel(const T* w, int64_t stride, int64_t columns, int64_t depth, float* to) {
  int64_t k = 0;
  if (columns == kPanelColumns) {
    for (; k + 4 <= depth; k += 4) {
      for (int64_t j = 0; j < kPanelColumns; j += 4) {
        Transpose4x4(w + j * stride + k, stride, to + k * kPanelColumns + j, kPanelColumns);
      }
    }
  }
  for (; k < depth; ++k) {
    for (int64_t j = 0; j < kPanelColumns; ++j) {
      to[k * kPanelColumns + j] = j < columns ? LoadOne(w + j * stride + k) : 0.0f;
    }
  }
}

// to[k][16] = w[k][0..columns), zeros to the right.
void CopyPanel(const float* w, int64_t stride, int64_t columns, int64_t depth, float* to) {
  for (int64_t k = 0; k < depth; ++k, w += stride, to += kPanelColumns) {
    if (columns == kPanelColumns) {
      std::memcpy(to, w, kPanelColumns * sizeof(float));
    } else {
      for (int64_t j = 0; j < kPanelColumns; ++j) to[j] = j < columns ? w[j] : 0.0f;
    }
  }
}

// Two rows of a packed bf16 panel from one row of words.
void WidenPanel(const uint32_t* words, int64_t depth, float* to) {
  for (int64_t k = 0; k < depth; k += 2) {
    for (int j = 0; j < kPanelColumns; j += kLanes) {
      const VecU both = LoadWords(words + k / 2 * kPanelColumns + j);
      Store(to + k * kPanelColumns + j, (Vec)(both << 16));
      if (k + 1 < depth) Store(to + (k + 1) * kPanelColumns + j, (Vec)(both & kHighHalf));
    }
  }
}

const float* PackedF32(const Tensor& packed, int64_t panel, int64_t k) {
  return packed.f32() + panel * PackedDepth(DType::kF32, k) * kPanelColumns;
}
const uint32_t* PackedWords(const Tensor& packed, int64_t panel, int64_t k) {
  return static_cast<const uint32_t*>(packed.data()) +
         panel * PackedDepth(DType::kBF16, k) / 2 * kPanelColumns;
}

// to[k][rows] = a's rows as fp32. Four rows by four numbers at a time where there are as many.
template <typename T>
void InterleaveRows(const T* a, int64_t stride, int64_t rows, int64_t depth, float* to) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4)
      Transpose4x4(a + i * stride + k, stride, to + k * rows + i, rows);
    for (; k < depth; ++k) {
      for (int64_t j = i; j < i + 4; ++j) to[k * rows + j] = LoadOne(a + j * stride + k);
    }
  }
  for (; i < rows; ++i) {
    const T* row = a + i * stride;
    for (int64_t k = 0; k < depth; ++k) to[k * rows + i] = LoadOne(row + k);
  }
}

// ---- many rows ----

// A tile of C: kRows rows, interleaved in a, by kPanels panels, panel_stride floats apart in b.
template <int kRows, int kPanels>
[[gnu::always_inline]] inline void RegisterTile(const float* a, const float* b,
                                                int64_t panel_stride, int64_t depth, float* c,
                                                int64_t c_stride, bool continues, bool adds) {
  constexpr int kVectors = kPanels * kVectorsPerPanel;
  Vec sums[kRows][kVectors];
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j] = continues ? Load(c + i * c_stride + j * kLanes) : Vec{};
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec b_k[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      b_k[j] = Load(b + j / kVectorsPerPanel * panel_stride + k * kPanelColumns +
                    j % kVectorsPerPanel * kLanes);
    }
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      const float a_ik = a[k * kRows + i];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] += a_ik * b_k[j];
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      float* to = c + i * c_stride + j * kLanes;
      Store(to, adds ? Load(to) + sums[i][j] : sums[i][j]);
    }
  }
}

struct BlockArgs {
  const float* a = nullptr;  // groups of kRegisterRows interleaved rows, the last smaller
  int64_t rows = 0;
  const float* b = nullptr;
  int64_t panel_stride = 0;
  int64_t depth = 0;
  float* c = nullptr;
  int64_t c_stride = 0;
  bool continues = false;  // the chain that c holds so far
  bool adds = false;       // a whole chain to c
};

// The last group, of fewer rows: found at compile time by counting down.
template <int kRows, int kPanels>
void LastRows(const BlockArgs& args, int64_t first, int64_t rows) {
  if constexpr (kRows > 0) {
    if (rows != kRows) return LastRows<kRows - 1, kPanels>(args, first, rows);
    RegisterTile<kRows, kPanels>(args.a + first * args.depth, args.b, args.panel_stride, args.depth,
                                 args.c + first * args.c_stride, args.c_stride, args.continues,
                                 args.adds);
  }
}

template <int kPanels>
void BlockTimesPanels(const BlockArgs& args) {
  int64_t row = 0;
  for (; row + kRegisterRows <= args.rows; row += kRegisterRows) {
    RegisterTile<kRegisterRows, kPanels>(args.a + row * args.depth, args.b, args.panel_stride,
                                         args.depth, args.c + row * args.c_stride, args.c_stride,
                                         args.continues, args.adds);
  }
  LastRows<kRegisterRows - 1, kPanels>(args, row, args.rows - row);
}

// Rows of a by panels [begin, end).
class Blocked {
 public:
  explicit Blocked(const PanelMatmulKernelArgs& args)
      : args_(args),
        rows_(args.c.dim(0)),
        depth_(args.a.dim(args.transpose_a ? 0 : 1)),
        columns_(args.c.dim(1)) {
    // Equal parts of K, even for the pairs of bf16.
    const int64_t parts = std::max<int64_t>((depth_ + kPanelDepth - 1) / kPanelDepth, 1);
    depth_step_ = std::max<int64_t>(((depth_ + parts - 1) / parts + 1) / 2 * 2, 2);
    // Chains are computed in place where nothing is done to them at their end but one addition.
    direct_ = args.c.dtype() == DType::kF32 && args.scale == 1 &&
              (!args.accumulate || depth_ <= depth_step_);
    a_ = args.scratch;
    b_ = a_ + rows_ * kPanelDepth;
    edge_ = b_ + kRegisterPanels * kPanelDepth * kPanelColumns;
    c_ = edge_ + rows_ * kPanelColumns;
  }

  void Run(int64_t begin, int64_t end) {
    // Sums that wait in scratch are of a chunk of columns.
    const int64_t step = direct_ ? end - begin : kPanelsPerChunk;
    for (int64_t panel = begin; panel < end; panel += step) {
      Chunk(panel, std::min(end, panel + step));
    }
  }

 private:
  void Chunk(int64_t begin, int64_t end) {
    for (int64_t k = 0; k < depth_ || k == 0; k += depth_step_) {
      const int64_t depth = std::min(depth_step_, depth_ - k);
      PackA(k, depth);
      for (int64_t panel = begin; panel < end;) {
        const int64_t panels = std::min<int64_t>(kRegisterPanels, end - panel);
        // A panel that c does not fill goes alone, to a buffer that is as wide as it.
        const bool edge = (panel + panels) * kPanelColumns > columns_;
        const int64_t some = edge && panels > 1 ? panels - 1 : panels;
        Panels(begin, panel, some, k, depth, edge && some == panels);
        panel += some;
      }
    }
    if (columns_ < end * kPanelColumns) CopyEdge(end - 1);
    if (!direct_) Convert(begin, end);
  }

  void PackA(int64_t k, int64_t depth) {
    if (args_.transpose_a) return PackTransposedA(k, depth);
    WithType(args_.a, [&](auto* a) {
      for (int64_t row = 0; row < rows_; row += kRegisterRows) {
        InterleaveRows(a + row * args_.a.stride(0) + k, args_.a.stride(0),
                       std::min<int64_t>(kRegisterRows, rows_ - row), depth, a_ + row * depth);
      }
    });
  }

  // Rows lie side by side already.
  void PackTransposedA(int64_t first, int64_t depth) {
    const int64_t full = rows_ / kRegisterRows * kRegisterRows, rest = rows_ - full;
    for (int64_t k = 0; k < depth; ++k) {
      const float* from = args_.a.f32() + (first + k) * args_.a.stride(0);
      for (int64_t row = 0; row < full; row += kRegisterRows) {
        std::memcpy(a_ + row * depth + k * kRegisterRows, from + row,
                    kRegisterRows * sizeof(float));
      }
      for (int64_t i = 0; i < rest; ++i) a_[full * depth + k * rest + i] = from[full + i];
    }
  }

  void Panels(int64_t chunk, int64_t panel, int64_t panels, int64_t k, int64_t depth, bool edge) {
    BlockArgs block = {.a = a_,
                       .rows = rows_,
                       .depth = depth,
                       .continues = k > 0,
                       .adds = args_.accumulate && direct_ && !edge};
    if (args_.packed.defined() && args_.packed.dtype() == DType::kF32) {
      block.b = PackedF32(args_.packed, panel, depth_) + k * kPanelColumns;
      block.panel_stride = depth_ * kPanelColumns;
    } else {
      for (int64_t i = 0; i < panels; ++i) UnpackPanel(panel + i, k, depth, i);
      block.b = b_;
      block.panel_stride = kPanelDepth * kPanelColumns;
    }
    if (edge) {
      block.c = edge_;
      block.c_stride = kPanelColumns;
    } else if (direct_) {
      block.c = args_.c.f32() + panel * kPanelColumns;
      block.c_stride = args_.c.stride(0);
    } else {
      block.c = c_ + (panel - chunk) * kPanelColumns;
      block.c_stride = kPanelsPerChunk * kPanelColumns;
    }
    if (panels == 1) {
      BlockTimesPanels<1>(block);
    } else {
      BlockTimesPanels<kRegisterPanels>(block);
    }
  }

  // Panel `panel` as fp32, at place i of b_.
  void UnpackPanel(int64_t panel, int64_t k, int64_t depth, int64_t i) {
    float* to = b_ + i * kPanelDepth * kPanelColumns;
    if (args_.packed.defined()) {
      WidenPanel(PackedWords(args_.packed, panel, depth_) + k / 2 * kPanelColumns, depth, to);
      return;
    }
    const int64_t column = panel * kPanelColumns;
    const int64_t columns = std::min(kPanelColumns, columns_ - column);
    const int64_t stride = args_.w.stride(0);
    if (args_.transpose_w) {
      CopyPanel(args_.w.f32() + k * stride + column, stride, columns, depth, to);
      return;
    }
    WithType(args_.w,
             [&](auto* w) { TransposePanel(w + column * stride + k, stride, columns, depth, to); });
  }

  // Scales finished sums in scratch, so that each is rounded before it is added to c: in one
  // expression the compiler fuses the two, here and not there.
  void Scale(float* sums, int64_t columns, int64_t stride) const {
    if (args_.scale == 1) return;
    for (int64_t row = 0; row < rows_; ++row) {
      float* x = sums + row * stride;
      for (int64_t j = 0; j < columns; j += kLanes) Store(x + j, Load(x + j) * args_.scale);
    }
  }

  void CopyEdge(int64_t panel) {
    const int64_t column = panel * kPanelColumns;
    Scale(edge_, kPanelColumns, kPanelColumns);
    WithType(args_.c, [&](auto* c) {
      for (int64_t row = 0; row < rows_; ++row) {
        auto* to = c + row * args_.c.stride(0);
        for (int64_t j = column; j < columns_; ++j) {
          const float product = edge_[row * kPanelColumns + j - column];
          StoreOne(to + j, args_.accumulate ? LoadOne(to + j) + product : product);
        }
      }
    });
  }

  void Convert(int64_t begin, int64_t end) {
    const int64_t first = begin * kPanelColumns;
    const int64_t full = std::min(end, columns_ / kPanelColumns) * kPanelColumns - first;
    Scale(c_, full, kPanelsPerChunk * kPanelColumns);
    WithType(args_.c, [&](auto* c) {
      for (int64_t row = 0; row < rows_; ++row) {
        const float* from = c_ + row * kPanelsPerChunk * kPanelColumns;
        auto* to = c + row * args_.c.stride(0) + first;
        for (int64_t j = 0; j < full; j += kLanes) {
          const Vec product = Load(from + j);
          Store(to + j, args_.accumulate ? Load(to + j) + product : product);
        }
      }
    });
  }

  const PanelMatmulKernelArgs& args_;
  const int64_t rows_, depth_, columns_;
  int64_t depth_step_;
  bool direct_;
  float *a_, *b_, *edge_, *c_;
};

// ---- few rows ----

// kRows rows by kPanels packed panels, straight from memory.
template <int kRows, int kPanels>
void StreamF32(const float* a, int64_t a_stride, const float* b, int64_t depth, float* c) {
  constexpr int kVectors = kPanels * kVectorsPerPanel;
  Vec sums[kRows][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      const Vec b_k = Load(b + (j / kVectorsPerPanel * depth + k) * kPanelColumns +
                           j % kVectorsPerPanel * kLanes);
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) sums[i][j] += a[i * a_stride + k] * b_k;
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) Store(c + (i * kVectors + j) * kLanes, sums[i][j]);
  }
}

// The same of bf16 words; a's rows are padded to an even depth.
template <int kRows, int kPanels>
void StreamBf16(const float* a, int64_t a_stride, const uint32_t* b, int64_t depth, float* c) {
  constexpr int kVectors = kPanels * kVectorsPerPanel;
  const int64_t pairs = (depth + 1) / 2;
  Vec sums[kRows][kVectors] = {};
  for (int64_t k = 0; k < pairs; ++k) {
#pragma GCC unroll 16
    for (int j = 0; j < kVectors; ++j) {
      const VecU both = LoadWords(b + (j / kVectorsPerPanel * pairs + k) * kPanelColumns +
                                  j % kVectorsPerPanel * kLanes);
      const Vec even = (Vec)(both << 16);
      const Vec odd = (Vec)(both & kHighHalf);
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
        sums[i][j] += a[i * a_stride + 2 * k] * even;
        sums[i][j] += a[i * a_stride + 2 * k + 1] * odd;
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kVectors; ++j) Store(c + (i * kVectors + j) * kLanes, sums[i][j]);
  }
}

// kRows rows by panels [begin, end).
template <int kRows>
void Stream(const PanelMatmulKernelArgs& args, const float* a, int64_t a_stride, int64_t begin,
            int64_t end) {
  constexpr int kPanels = kLanes == 4 ? 1 : kRows == 1 ? 4 : kRows <= 3 ? 2 : 1;
  const int64_t depth = args.a.dim(1), columns = args.c.dim(1);
  alignas(64) float c[kRows * kPanels * kPanelColumns];
  const auto some_panels = [&]<int kSome>(int64_t panel) {
    if (args.packed.dtype() == DType::kF32) {
      StreamF32<kRows, kSome>(a, a_stride, PackedF32(args.packed, panel, depth), depth, c);
    } else {
      StreamBf16<kRows, kSome>(a, a_stride, PackedWords(args.packed, panel, depth), depth, c);
    }
    const int64_t first = panel * kPanelColumns;
    const int64_t n = std::min<int64_t>(kSome * kPanelColumns, columns - first);
    WithType(args.c, [&](auto* to) {
      for (int i = 0; i < kRows; ++i) {
        const float* from = c + i * kSome * kPanelColumns;
        auto* row = to + i * args.c.stride(0) + first;
        ForVectors(
            n, [&](int64_t j) { Store(row + j, Load(from + j)); },
            [&](int64_t j, int64_t rest) {
              for (int64_t l = j; l < j + rest; ++l) StoreOne(row + l, from[l]);
            });
      }
    });
  };
  int64_t panel = begin;
  for (; panel + kPanels <= end; panel += kPanels) {
    some_panels.template operator()<kPanels>(panel);
  }
  for (; panel < end; ++panel) some_panels.template operator()<1>(panel);
}

// Finds the number of rows at compile time.
template <int kRows>
void StreamRows(const PanelMatmulKernelArgs& args, const float* a, int64_t a_stride, int64_t begin,
                int64_t end) {
  if constexpr (kRows > 0) {
    if (args.a.dim(0) != kRows) {
      return StreamRows<kRows - 1>(args, a, a_stride, begin, end);
    }
    Stream<kRows>(args, a, a_stride, begin, end);
  }
}

}  // namespace

void PanelMatmul(const PanelMatmulKernelArgs& args, int64_t begin, int64_t end) {
  const int64_t rows = args.c.dim(0), depth = args.a.dim(1);
  if (!args.packed.defined() || rows > kPanelFewRows) return Blocked(args).Run(begin, end);
  if (args.a.dtype() == DType::kF32 && args.packed.dtype() == DType::kF32) {
    return StreamRows<kPanelFewRows>(args, args.a.f32(), args.a.stride(0), begin, end);
  }
  // As fp32, with a zero after an odd depth.
  const int64_t stride = (depth + 1) / 2 * 2;
  WithType(args.a, [&](auto* a) {
    for (int64_t i = 0; i < rows; ++i) {
      args.scratch[i * stride + stride - 1] = 0.0f;
      for (int64_t k = 0; k < depth; ++k) {
        args.scratch[i * stride + k] = LoadOne(a + i * args.a.stride(0) + k);
      }
    }
  });
  StreamRows<kPanelFewRows>(args, args.scratch, stride, begin, end);
}

void PackPanels(const PackPanelsKernelArgs& args, int64_t begin, int64_t end) {
  const int64_t depth = args.w.dim(1);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t column = args.first_row + row;
    const int64_t panel = column / kPanelColumns, lane = column % kPanelColumns;
    if (args.packed.dtype() == DType::kF32) {
      float* to = args.packed.f32() + panel * depth * kPanelColumns + lane;
      const float* from = args.w.f32() + row * args.w.stride(0);
      for (int64_t k = 0; k < depth; ++k) to[k * kPanelColumns] = from[k];
    } else {
      const int64_t pairs = PackedDepth(DType::kBF16, depth) / 2;
      BF16* to = args.packed.bf16() + (panel * pairs * kPanelColumns + lane) * 2;
      const BF16* from = args.w.bf16() + row * args.w.stride(0);
      for (int64_t k = 0; k < depth; ++k) to[k / 2 * 2 * kPanelColumns + k % 2] = from[k];
    }
  }
}

void PackedEmbedding(const PackedEmbeddingArgs& args, int64_t begin, int64_t end) {
  const int64_t dim = args.out.dim(1);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t token = args.tokens.i32()[row];
    const int64_t panel = token / kPanelColumns, lane = token % kPanelColumns;
    float* to = args.out.f32() + row * args.out.stride(0);
    if (args.packed.dtype() == DType::kF32) {
      const float* from = PackedF32(args.packed, panel, dim) + lane;
      for (int64_t k = 0; k < dim; ++k) to[k] = from[k * kPanelColumns];
    } else {
      const auto* from = reinterpret_cast<const BF16*>(PackedWords(args.packed, panel, dim) + lane);
      for (int64_t k = 0; k < dim; ++k) to[k] = LoadOne(from + k / 2 * 2 * kPanelColumns + k % 2);
    }
  }
}

}  // namespace cria::model::cpu::CRIA_ISA
