#include "model/cpu/gemm.h"

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/cpu.h"
#include "base/parallel.h"
#include "model/cpu/kernels.h"

namespace cria::model::cpu {
namespace {

// Rows and columns of C that one call computes. Large enough that packing B again for each tile
// costs 1-3 % (measured with dnnl_sgemm on AVX2), small enough that two to sixteen cores share the
// work.
constexpr int64_t kTileRows = 256;
constexpr int64_t kTileColumns = 1024;

struct Tile {
  int64_t row, rows, column, columns;
};

// How many tiles a length is cut into: an even number where there is more than one.
int64_t CountTiles(int64_t length, int64_t tile) {
  if (length < tile + tile / 8) return 1;
  return (length / tile + 1) / 2 * 2;
}

std::vector<int64_t> Cut(int64_t length, int64_t num_tiles) {
  std::vector<int64_t> bounds(static_cast<size_t>(num_tiles) + 1);
  for (int64_t i = 0; i <= num_tiles; ++i) {
    bounds[static_cast<size_t>(i)] = std::min(length, (length * i / num_tiles + 7) / 8 * 8);
  }
  bounds.back() = length;
  return bounds;
}

// Tiles for C[m,n], a function of the sizes alone. Rows are cut first; columns only where rows give
// less than two tiles.
void PlanTiles(int64_t m, int64_t n, std::vector<Tile>* tiles) {
  const int64_t row_tiles = CountTiles(m, kTileRows / 2) < 4 && m < kTileRows
                                ? 1
                                : std::max<int64_t>(CountTiles(m, kTileRows), 2);
  const int64_t column_tiles = row_tiles > 1 ? 1 : CountTiles(n, kTileColumns / 4);
  const std::vector<int64_t> rows = Cut(m, row_tiles);
  const std::vector<int64_t> columns = Cut(n, column_tiles);
  tiles->clear();
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    for (size_t j = 0; j + 1 < columns.size(); ++j) {
      if (rows[i + 1] > rows[i] && columns[j + 1] > columns[j]) {
        tiles->push_back({rows[i], rows[i + 1] - rows[i], columns[j], columns[j + 1] - columns[j]});
      }
    }
  }
}

// oneDNN follows CRIA_CPU_ISA downwards. Must run before its first kernel is made.
void LimitOneDnn() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (ActiveIsa() == Isa::kAvx2) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    if (ActiveIsa() == Isa::kGeneric) dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
  });
}

// Memory that grows to the largest size asked for and is not given back.
class Scratch {
 public:
  float* Floats(int64_t n) {
    if (static_cast<int64_t>(memory_.size()) < n) memory_ = std::vector<float>(n);
    return memory_.data();
  }
  int64_t bytes() const { return static_cast<int64_t>(memory_.size() * sizeof(float)); }

 private:
  std::vector<float> memory_;
};

void Check(dnnl_status_t status, const MatmulArgs& args) {
  CRIA_CHECK(status == dnnl_success, "oneDNN status ", static_cast<int>(status), " for ",
             args.a.ToString(), " x ", args.b.ToString(), " -> ", args.c.ToString());
}

}  // namespace

class Gemm::Impl {
 public:
  Impl() : engine_(dnnl::engine::kind::cpu, 0), threads_(static_cast<size_t>(NumThreads())) {
    for (PerThread& thread : threads_) thread.stream = dnnl::stream(engine_);
  }

  void Run(const MatmulArgs& args) {
    const int64_t m = args.c.dim(0), n = args.c.dim(1);
    const int64_t k = args.transpose_a ? args.a.dim(0) : args.a.dim(1);
    CRIA_CHECK(args.a.dim(args.transpose_a ? 1 : 0) == m &&
                   args.b.dim(args.transpose_b ? 0 : 1) == n &&
                   args.b.dim(args.transpose_b ? 1 : 0) == k,
               "matmul ", args.a.ToString(), args.transpose_a ? "^T" : "", " x ", args.b.ToString(),
               args.transpose_b ? "^T" : "", " -> ", args.c.ToString());
    CRIA_CHECK(!args.accumulate || args.c.dtype() == DType::kF32, "accumulate into ",
               args.c.ToString());
    if (m == 0 || n == 0) return;
    if (static_cast<int>(threads_.size()) < NumThreads()) {
      threads_.resize(static_cast<size_t>(NumThreads()));
      for (PerThread& thread : threads_) thread.stream = dnnl::stream(engine_);
    }
    PlanTiles(m, n, &tiles_);
    const bool in_bf16 = args.a.dtype() == DType::kBF16 && args.b.dtype() == DType::kBF16;
    if (in_bf16 && CpuHasBf16()) {
      RunTiles(args, k, args.a, args.b, &Impl::MatmulTile);
    } else {
      const Tensor a = Widen(args.a, &a_wide_);
      const Tensor b = Widen(args.b, &b_wide_);
      RunTiles(args, k, a, b, &Impl::SgemmTile);
    }
  }

  int64_t workspace_bytes() const {
    int64_t bytes = a_wide_.bytes() + b_wide_.bytes();
    for (const PerThread& thread : threads_) bytes += thread.tile.bytes() + thread.library.bytes();
    return bytes;
  }

 private:
  struct PerThread {
    dnnl::stream stream;
    Scratch tile;     // C in fp32 before its conversion
    Scratch library;  // oneDNN's own
  };

  // What a primitive is made for.
  struct Key {
    int64_t m, n, k, a_stride, b_stride, c_stride;
    bool transpose_a, transpose_b, bf16_out, accumulate;
    auto operator<=>(const Key&) const = default;
  };
  struct Primitive {
    dnnl::matmul::primitive_desc description;
    dnnl::matmul matmul;
  };

  using TileFunction = void (Impl::*)(const MatmulArgs&, const Tensor& a, const Tensor& b,
                                      int64_t k, const Tile&, const Tensor& c, float scale,
                                      bool accumulate, PerThread*);

  // An operand in fp32: itself, or its exact copy in scratch.
  static Tensor Widen(const Tensor& x, Scratch* scratch) {
    if (x.dtype() == DType::kF32) return x;
    const Tensor wide(scratch->Floats(x.num_elements()), DType::kF32, {x.dim(0), x.dim(1)});
    const int64_t num_blocks = (x.dim(0) + kRowsPerBlock - 1) / kRowsPerBlock;
    ParallelFor(num_blocks, [&](int64_t block) {
      Kernels().Copy({x, wide}, block * kRowsPerBlock,
                     std::min(x.dim(0), (block + 1) * kRowsPerBlock));
    });
    return wide;
  }

  void RunTiles(const MatmulArgs& args, int64_t k, const Tensor& a, const Tensor& b,
                TileFunction function) {
    // A primitive is made before the threads start: making one is not cheap and not needed in
    // parallel.
    const bool primitives = function == &Impl::MatmulTile;
    const bool direct = args.c.dtype() == DType::kF32 ? (!primitives || args.scale == 1)
                                                      : (primitives && args.scale == 1);
    if (primitives) {
      for (const Tile& tile : tiles_) {
        FindPrimitive(MakeKey(args, a, b, k, tile, direct ? args.c.stride(0) : tile.columns,
                              direct && args.c.dtype() == DType::kBF16, direct && args.accumulate));
      }
    }
    ParallelFor(static_cast<int64_t>(tiles_.size()), [&](int64_t i) {
      const Tile& tile = tiles_[static_cast<size_t>(i)];
      PerThread& thread = threads_[static_cast<size_t>(ThreadIndex())];
      const Tensor c = args.c.Rows(tile.row, tile.row + tile.rows)
                           .Columns(tile.column, tile.column + tile.columns);
      if (direct) {
        (this->*function)(args, a, b, k, tile, c, args.scale, args.accumulate, &thread);
        return;
      }
      const Tensor product(thread.tile.Floats(tile.rows * tile.columns), DType::kF32,
                           {tile.rows, tile.columns});
      (this->*function)(args, a, b, k, tile, product, 1.0f, false, &thread);
      Kernels().ScaledAdd({product, c, args.scale, args.accumulate}, 0, tile.rows);
    });
  }

  void SgemmTile(const MatmulArgs& args, const Tensor& a, const Tensor& b, int64_t k,
                 const Tile& tile, const Tensor& c, float scale, bool accumulate, PerThread*) {
    const float* a_tile = a.f32() + tile.row * (args.transpose_a ? 1 : a.stride(0));
    const float* b_tile = b.f32() + tile.column * (args.transpose_b ? b.stride(0) : 1);
    Check(dnnl_sgemm(args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', tile.rows,
                     tile.columns, k, scale, a_tile, a.stride(0), b_tile, b.stride(0),
                     accumulate ? 1.0f : 0.0f, c.f32(), c.stride(0)),
          args);
  }

  void MatmulTile(const MatmulArgs& args, const Tensor& a, const Tensor& b, int64_t k,
                  const Tile& tile, const Tensor& c, float, bool accumulate, PerThread* thread) {
    const Primitive& primitive = FindPrimitive(
        MakeKey(args, a, b, k, tile, c.stride(0), c.dtype() == DType::kBF16, accumulate));
    BF16* a_tile = a.bf16() + tile.row * (args.transpose_a ? 1 : a.stride(0));
    BF16* b_tile = b.bf16() + tile.column * (args.transpose_b ? b.stride(0) : 1);
    const dnnl::memory::desc scratch_md = primitive.description.scratchpad_desc();
    const auto scratch_floats = static_cast<int64_t>(scratch_md.get_size() / sizeof(float) + 1);
    primitive.matmul.execute(
        thread->stream,
        {{DNNL_ARG_SRC, dnnl::memory(primitive.description.src_desc(), engine_, a_tile)},
         {DNNL_ARG_WEIGHTS, dnnl::memory(primitive.description.weights_desc(), engine_, b_tile)},
         {DNNL_ARG_DST, dnnl::memory(primitive.description.dst_desc(), engine_, c.data())},
         {DNNL_ARG_SCRATCHPAD,
          dnnl::memory(scratch_md, engine_, thread->library.Floats(scratch_floats))}});
  }

  Key MakeKey(const MatmulArgs& args, const Tensor& a, const Tensor& b, int64_t k, const Tile& tile,
              int64_t c_stride, bool bf16_out, bool accumulate) const {
    return {.m = tile.rows,
            .n = tile.columns,
            .k = k,
            .a_stride = a.stride(0),
            .b_stride = b.stride(0),
            .c_stride = c_stride,
            .transpose_a = args.transpose_a,
            .transpose_b = args.transpose_b,
            .bf16_out = bf16_out,
            .accumulate = accumulate};
  }

  // Inside a parallel loop this only reads: RunTiles has made every primitive before.
  const Primitive& FindPrimitive(const Key& key) {
    const auto found = primitives_.find(key);
    if (found != primitives_.end()) return found->second;
    using dnnl::memory;
    constexpr auto kBf16 = memory::data_type::bf16;
    const memory::desc a(
        {key.m, key.k}, kBf16,
        key.transpose_a ? memory::dims{1, key.a_stride} : memory::dims{key.a_stride, 1});
    const memory::desc b(
        {key.k, key.n}, kBf16,
        key.transpose_b ? memory::dims{1, key.b_stride} : memory::dims{key.b_stride, 1});
    const memory::desc c({key.m, key.n}, key.bf16_out ? kBf16 : memory::data_type::f32,
                         memory::dims{key.c_stride, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes, engine_);
    return primitives_.emplace(key, Primitive{description, dnnl::matmul(description)})
        .first->second;
  }

  dnnl::engine engine_;
  std::vector<PerThread> threads_;
  std::vector<Tile> tiles_;
  Scratch a_wide_, b_wide_;
  std::map<Key, Primitive> primitives_;
};

Gemm::Gemm() {
  LimitOneDnn();
  impl_ = std::make_unique<Impl>();
}
Gemm::~Gemm() = default;
void Gemm::Run(const MatmulArgs& args) { impl_->Run(args); }
int64_t Gemm::PlanBytes(const StepShape& shape) {
  if (!shape.bf16 || CpuHasBf16()) return 0;
  // Both operands widened at their largest: an activation beside an activation or a weight.
  const int64_t rows = shape.batch * shape.time;
  const int64_t qkv = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const int64_t widest = std::max({qkv, 2 * shape.ffn, shape.dim});
  const int64_t a = std::max(rows * widest, shape.head_rows * shape.vocab);
  const int64_t b = std::max(
      {rows * std::max(shape.dim, shape.ffn), widest * shape.dim, shape.vocab * shape.dim});
  const int64_t tile = kTileRows * 5 / 4 * widest;
  return static_cast<int64_t>(sizeof(float)) * (a + b + tile * NumThreads());
}
int64_t Gemm::workspace_bytes() const { return impl_->workspace_bytes(); }

}  // namespace cria::model::cpu
