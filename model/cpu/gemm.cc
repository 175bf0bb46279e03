#include "model/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/cpu.h"
#include "base/parallel.h"
#include "model/cpu/kernels.h"
#include "model/cpu/panel_gemm.h"

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

// Weights are packed where a whole row of tiles shares them.
bool SharesWeights(const std::vector<Tile>& tiles, int64_t columns) {
  return !tiles.empty() && tiles[0].columns == columns;
}

// How many packed forms of a weight products of `rows` rows and those of `more` keep: one for each
// height of their tiles.
int64_t CountPackedForms(int64_t rows, int64_t more, int64_t columns) {
  std::set<int64_t> heights;
  std::vector<Tile> tiles;
  for (const int64_t m : {rows, more}) {
    if (m == 0) continue;
    PlanTiles(m, columns, &tiles);
    if (!SharesWeights(tiles, columns)) continue;
    for (const Tile& tile : tiles) heights.insert(tile.rows);
  }
  return static_cast<int64_t>(heights.size());
}

// Of all weights' packed forms: in fp32 for the backward products, in bf16 for both directions.
int64_t PackedElements(const StepShape& shape) {
  struct Weight {
    int64_t out, in, count, rows, more_rows;
  };
  const int64_t rows = shape.batch * shape.time, layers = shape.kept_layers;
  const int64_t q = shape.heads * shape.head_dim, qkv = q + 2 * shape.kv_heads * shape.head_dim;
  const Weight weights[] = {
      {qkv, shape.dim, layers, rows, 0},
      {shape.dim, q, layers, rows, 0},
      {2 * shape.ffn, shape.dim, layers, rows, 0},
      {shape.dim, shape.ffn, layers, rows, 0},
      {shape.vocab, shape.dim, shape.kept_head ? 1 : 0, shape.head_rows,
       shape.head_rows > 0 ? rows % shape.head_rows : 0},
  };
  int64_t elements = 0;
  for (const Weight& w : weights) {
    int64_t forms = 0;
    if (shape.training) forms += CountPackedForms(w.rows, w.more_rows, w.in);
    if (shape.bf16) forms += CountPackedForms(w.rows, w.more_rows, w.out);
    elements += w.count * forms * w.out * w.in;
  }
  return elements;
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
    if (static_cast<int64_t>(memory_.size()) < n) {
      memory_ = {};  // first, so that old and new are never held together
      memory_ = std::vector<float>(n);
    }
    return memory_.data();
  }
  int64_t bytes() const { return static_cast<int64_t>(memory_.size() * sizeof(float)); }

 private:
  std::vector<float> memory_;
};

// While it lives, oneDNN called from this thread runs on this thread alone, also where no parallel
// loop is around it: it would split sums by the threads it finds, and plans a primitive for them.
class OneThreadForOneDnn {
 public:
  OneThreadForOneDnn() : num_threads_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThreadForOneDnn() { omp_set_num_threads(num_threads_); }

 private:
  const int num_threads_;
};

}  // namespace

class Gemm::Impl {
 public:
  explicit Impl(Path path)
      : engine_(dnnl::engine::kind::cpu, 0), main_stream_(engine_), path_(path) {
    ResizeThreads();
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
    CRIA_CHECK(!args.keep_b || args.b_is_weight, "only weights are kept");
    if (m == 0 || n == 0) return;
    if (k == 0) return ProductOfNothing(args);
    if (args.chain) return RunChain(args);
    if (IsForwardOfWeight(args)) return panels_.Run({.a = args.a, .w = args.b, .c = args.c});
    const OneThreadForOneDnn one_thread;
    ResizeThreads();
    PlanTiles(m, n, &tiles_);
    const bool same_type = args.a.dtype() == args.b.dtype();
    const bool bf16 = args.a.dtype() == DType::kBF16;
    if (path_ == Path::kPrimitives && same_type && (!bf16 || CpuHasBf16()) &&
        RunPrimitives(args, k)) {
      return;
    }
    const Tensor a = Widen(args.a, &a_wide_);
    const Tensor b = Widen(args.b, &b_wide_);
    RunTiles(args, args.c.dtype() == DType::kF32,
             [&](const Tile& tile, const Tensor& c, float scale, bool accumulate, PerThread*) {
               SgemmTile(args, a, b, k, tile, c, scale, accumulate);
             });
  }

  void RunPacked(const MatmulPackedArgs& args) {
    panels_.Run({.a = args.a, .packed = args.packed, .c = args.c});
  }

  void WeightsChanged() { ++weights_version_; }

  int64_t workspace_bytes() const {
    int64_t bytes = a_wide_.bytes() + b_wide_.bytes() + panels_.workspace_bytes();
    for (const PerThread& thread : threads_) bytes += thread.tile.bytes() + thread.library.bytes();
    for (const auto& [key, packed] : packed_) bytes += packed.memory.bytes();
    return bytes;
  }

 private:
  static void ProductOfNothing(const MatmulArgs& args) {
    if (args.accumulate) return;
    const auto bytes = static_cast<size_t>(args.c.dim(1) * DTypeBytes(args.c.dtype()));
    for (int64_t row = 0; row < args.c.dim(0); ++row) std::memset(At(args.c, row, true), 0, bytes);
  }

  void RunChain(const MatmulArgs& args) {
    CRIA_CHECK(args.a.dtype() == DType::kF32 && args.b.dtype() == DType::kF32, "a chain of ",
               args.a.ToString(), " x ", args.b.ToString());
    panels_.Run({.a = args.a,
                 .w = args.b,
                 .c = args.c,
                 .transpose_a = args.transpose_a,
                 .transpose_w = !args.transpose_b,
                 .accumulate = args.accumulate,
                 .scale = args.scale});
  }

  // The products that decoding repeats row by row, and must find the same bits for.
  bool IsForwardOfWeight(const MatmulArgs& args) const {
    if (!args.b_is_weight || !args.transpose_b || args.transpose_a) return false;
    if (args.accumulate || args.scale != 1) return false;
    const bool fp32 = args.a.dtype() == DType::kF32 && args.b.dtype() == DType::kF32;
    return fp32 || path_ == Path::kSgemm || !CpuHasBf16();
  }

  struct PerThread {
    dnnl::stream stream;
    Scratch tile;     // C in fp32 before its conversion
    Scratch library;  // oneDNN's own
  };

  // What a primitive is made for.
  struct Key {
    int64_t m, n, k, a_stride, b_stride, c_stride;
    bool bf16, transpose_a, transpose_b, packed_b, bf16_out, accumulate;
    auto operator<=>(const Key&) const = default;
  };
  struct Primitive {
    dnnl::matmul::primitive_desc description;
    dnnl::matmul matmul;
    // The library has no kernel for this on this CPU: the fp32 path computes it.
    bool supported = false;
  };
  // A weight in the layout that a primitive asked for.
  struct PackedKey {
    const void* data;
    int64_t m, n, k;  // m: tiles of another height may want another layout
    bool transpose;
    auto operator<=>(const PackedKey&) const = default;
  };
  struct Packed {
    Scratch memory;
    int64_t version = -1;
  };

  void ResizeThreads() {
    while (static_cast<int>(threads_.size()) < NumThreads()) {
      threads_.emplace_back().stream = dnnl::stream(engine_);
    }
  }

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

  // Runs `product` for each tile of C: into C itself (`direct`), or into scratch that is then
  // scaled, added and converted into C.
  template <typename Product>
  void RunTiles(const MatmulArgs& args, bool direct, const Product& product) {
    ParallelFor(static_cast<int64_t>(tiles_.size()), [&](int64_t i) {
      const Tile& tile = tiles_[static_cast<size_t>(i)];
      PerThread& thread = threads_[static_cast<size_t>(ThreadIndex())];
      const Tensor c = args.c.Rows(tile.row, tile.row + tile.rows)
                           .Columns(tile.column, tile.column + tile.columns);
      if (direct) {
        product(tile, c, args.scale, args.accumulate, &thread);
        return;
      }
      const Tensor scratch(thread.tile.Floats(tile.rows * tile.columns), DType::kF32,
                           {tile.rows, tile.columns});
      product(tile, scratch, 1.0f, false, &thread);
      Kernels().ScaledAdd({scratch, c, args.scale, args.accumulate}, 0, tile.rows);
    });
  }

  void SgemmTile(const MatmulArgs& args, const Tensor& a, const Tensor& b, int64_t k,
                 const Tile& tile, const Tensor& c, float scale, bool accumulate) {
    const float* a_tile = a.f32() + tile.row * (args.transpose_a ? 1 : a.stride(0));
    const float* b_tile = b.f32() + tile.column * (args.transpose_b ? b.stride(0) : 1);
    const dnnl_status_t status =
        dnnl_sgemm(args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', tile.rows,
                   tile.columns, k, scale, a_tile, a.stride(0), b_tile, b.stride(0),
                   accumulate ? 1.0f : 0.0f, c.f32(), c.stride(0));
    CRIA_CHECK(status == dnnl_success, "dnnl_sgemm: status ", static_cast<int>(status), " for ",
               args.a.ToString(), " x ", args.b.ToString(), " -> ", args.c.ToString());
  }

  // The product by matmul primitives; false when the library lacks one of those needed.
  bool RunPrimitives(const MatmulArgs& args, int64_t k) {
    const bool packed_b = args.keep_b && SharesWeights(tiles_, args.c.dim(1));
    const bool direct = args.scale == 1;
    const auto key_of = [&](const Tile& tile) {
      return Key{.m = tile.rows,
                 .n = tile.columns,
                 .k = k,
                 .a_stride = args.a.stride(0),
                 .b_stride = args.b.stride(0),
                 .c_stride = direct ? args.c.stride(0) : tile.columns,
                 .bf16 = args.a.dtype() == DType::kBF16,
                 .transpose_a = args.transpose_a,
                 .transpose_b = args.transpose_b,
                 .packed_b = packed_b,
                 .bf16_out = direct && args.c.dtype() == DType::kBF16,
                 .accumulate = direct && args.accumulate};
    };
    // Made and packed here, so that the threads below only read.
    for (const Tile& tile : tiles_) {
      const Primitive& primitive = FindPrimitive(key_of(tile));
      if (!primitive.supported) return false;
      if (packed_b) PackedWeights(args, tile, k, primitive);
    }
    RunTiles(args, direct, [&](const Tile& tile, const Tensor& c, float, bool, PerThread* thread) {
      const Primitive& primitive = FindPrimitive(key_of(tile));
      void* b = packed_b ? PackedWeights(args, tile, k, primitive)
                         : At(args.b, tile.column, args.transpose_b);
      Execute(primitive, At(args.a, tile.row, !args.transpose_a), b, c.data(), thread);
    });
    return true;
  }

  // The first element of row (`rows`) or column `index` of a matrix.
  static void* At(const Tensor& x, int64_t index, bool rows) {
    const int64_t offset = index * (rows ? x.stride(0) : 1);
    return static_cast<char*>(x.data()) + offset * DTypeBytes(x.dtype());
  }

  void Execute(const Primitive& primitive, void* a, void* b, void* c, PerThread* thread) {
    const dnnl::memory::desc scratch_md = primitive.description.scratchpad_desc();
    const auto scratch_floats = static_cast<int64_t>(scratch_md.get_size() / sizeof(float) + 1);
    primitive.matmul.execute(
        thread->stream,
        {{DNNL_ARG_SRC, dnnl::memory(primitive.description.src_desc(), engine_, a)},
         {DNNL_ARG_WEIGHTS, dnnl::memory(primitive.description.weights_desc(), engine_, b)},
         {DNNL_ARG_DST, dnnl::memory(primitive.description.dst_desc(), engine_, c)},
         {DNNL_ARG_SCRATCHPAD,
          dnnl::memory(scratch_md, engine_, thread->library.Floats(scratch_floats))}});
  }

  // Inside a parallel loop this only reads: RunPrimitives has made every primitive before.
  const Primitive& FindPrimitive(const Key& key) {
    const auto found = primitives_.find(key);
    if (found != primitives_.end()) return found->second;
    Primitive primitive;
    try {
      primitive = MakePrimitive(key);
    } catch (const dnnl::error&) {
      primitive.supported = false;  // e.g. no such kernel for this instruction set
    }
    return primitives_.emplace(key, primitive).first->second;
  }

  Primitive MakePrimitive(const Key& key) const {
    using dnnl::memory;
    const auto type = key.bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    const auto strides = [](bool transpose, int64_t stride) {
      return transpose ? memory::dims{1, stride} : memory::dims{stride, 1};
    };
    const memory::desc a({key.m, key.k}, type, strides(key.transpose_a, key.a_stride));
    const memory::desc b =
        key.packed_b ? memory::desc({key.k, key.n}, type, memory::format_tag::any)
                     : memory::desc({key.k, key.n}, type, strides(key.transpose_b, key.b_stride));
    const memory::desc c({key.m, key.n},
                         key.bf16_out ? memory::data_type::bf16 : memory::data_type::f32,
                         memory::dims{key.c_stride, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(a, b, c), attributes,
                                                   engine_);
    return {description, dnnl::matmul(description), true};
  }

  // The weights args.b in the primitive's layout, packed again after WeightsChanged.
  void* PackedWeights(const MatmulArgs& args, const Tile& tile, int64_t k,
                      const Primitive& primitive) {
    const PackedKey key = {args.b.data(), tile.rows, tile.columns, k, args.transpose_b};
    Packed& packed = packed_[key];
    if (packed.version == weights_version_) return packed.memory.Floats(0);
    const dnnl::memory::desc to = primitive.description.weights_desc();
    const auto floats = static_cast<int64_t>(to.get_size() / sizeof(float) + 1);
    using dnnl::memory;
    const auto type =
        args.b.dtype() == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
    const memory::desc from(
        {k, tile.columns}, type,
        args.transpose_b ? memory::dims{1, args.b.stride(0)} : memory::dims{args.b.stride(0), 1});
    memory source(from, engine_, args.b.data());
    memory target(to, engine_, packed.memory.Floats(floats));
    dnnl::reorder(source, target).execute(main_stream_, source, target);
    main_stream_.wait();
    packed.version = weights_version_;
    return packed.memory.Floats(0);
  }

  dnnl::engine engine_;
  dnnl::stream main_stream_;
  const Path path_;
  std::vector<PerThread> threads_;
  std::vector<Tile> tiles_;
  PanelGemm panels_;
  Scratch a_wide_, b_wide_;
  std::map<Key, Primitive> primitives_;
  std::map<PackedKey, Packed> packed_;
  int64_t weights_version_ = 0;
};

Gemm::Gemm(Path path) {
  LimitOneDnn();
  if (path == Path::kAuto) {
    path = ActiveIsa() == Isa::kAvx512 ? Path::kPrimitives : Path::kSgemm;
  }
  impl_ = std::make_unique<Impl>(path);
}
Gemm::~Gemm() = default;
void Gemm::Run(const MatmulArgs& args) { impl_->Run(args); }
void Gemm::RunPacked(const MatmulPackedArgs& args) { impl_->RunPacked(args); }
void Gemm::WeightsChanged() { impl_->WeightsChanged(); }
int64_t Gemm::PlanBytes(const StepShape& shape) {
  const int64_t rows = shape.batch * shape.time;
  const int64_t qkv = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
  const int64_t widest = std::max({qkv, 2 * shape.ffn, shape.dim});
  const int64_t panels = PanelGemm::PlanBytes(rows, std::max(shape.dim, shape.ffn));
  // Weight gradients have a weight's rows.
  if (shape.chain) return std::max(panels, PanelGemm::PlanBytes(std::max(rows, widest), widest));
  if (ActiveIsa() == Isa::kAvx512 && (!shape.bf16 || CpuHasBf16())) {
    return panels + PackedElements(shape) * (shape.bf16 ? 2 : 4);
  }
  if (!shape.bf16 || !shape.training) return panels;
  // Both operands of the backward products widened at their largest: a gradient beside an
  // activation or a weight.
  const int64_t a = std::max(rows * widest, shape.head_rows * shape.vocab);
  const int64_t b = std::max(
      {rows * std::max(shape.dim, shape.ffn), widest * shape.dim, shape.vocab * shape.dim});
  const int64_t tile = kTileRows * 5 / 4 * std::max(shape.dim, shape.ffn);
  return panels + static_cast<int64_t>(sizeof(float)) * (a + b + tile * NumThreads());
}
int64_t Gemm::workspace_bytes() const { return impl_->workspace_bytes(); }

}  // namespace cria::model::cpu
