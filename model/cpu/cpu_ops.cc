#include "model/cpu/cpu_ops.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "model/cpu/gemm.h"
#include "model/cpu/kernels.h"
#include "model/fp8/quantize.h"

namespace cria::model::cpu {
namespace {

// Rows of logits an item.
constexpr int64_t kLogitRows = 8;

int64_t CountBlocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

// Runs a kernel over [0, n) in blocks of fixed size.
template <typename Args>
void RunBlocks(void (*kernel)(const Args&, int64_t, int64_t), const Args& args, int64_t n,
               int64_t block_size) {
  ParallelFor(CountBlocks(n, block_size), [&](int64_t block) {
    kernel(args, block * block_size, std::min(n, (block + 1) * block_size));
  });
}

// Runs body(piece) for pieces of a matrix of about kElementsPerBlock elements, which may have one
// row as long as a model; piece(x) is that part of x.
template <typename Body>
void RunPieces(int64_t rows, int64_t columns, const Body& body) {
  if (rows == 0 || columns == 0) return;
  const int64_t some_columns = std::min(columns, kElementsPerBlock);
  const int64_t some_rows = kElementsPerBlock / some_columns;
  const int64_t across = CountBlocks(columns, some_columns);
  ParallelFor(across * CountBlocks(rows, some_rows), [&](int64_t item) {
    const int64_t row = item / across * some_rows, column = item % across * some_columns;
    body([&](const Tensor& x) {
      return x.Rows(row, std::min(rows, row + some_rows))
          .Columns(column, std::min(columns, column + some_columns));
    });
  });
}

class CpuOps final : public Ops {
 public:
  int64_t WorkspaceBytes(const StepShape& shape) const override {
    const int64_t rows = shape.batch * shape.time;
    const AttentionForwardArgs attention = {
        .batch = shape.batch,
        .time = shape.attention_time > 0 ? shape.attention_time : shape.time,
        .heads = shape.heads,
        .kv_heads = shape.kv_heads,
        .head_dim = shape.head_dim};
    const int64_t attention_floats =
        std::max(AttentionForwardScratch(attention),
                 shape.training ? AttentionBackwardScratch(attention) : 0);
    const int64_t norm_floats = shape.training ? CountBlocks(rows, kRowsPerBlock) * shape.dim : 0;
    const int64_t n = static_cast<int64_t>(sizeof(float));
    return n * (attention_floats * NumThreads() + norm_floats) + Gemm::PlanBytes(shape);
  }

  void WeightsChanged() override { gemm_.WeightsChanged(); }
  void Matmul(const MatmulArgs& args) override { gemm_.Run(args); }

  int64_t PackedElements(DType dtype, int64_t n, int64_t k) const override {
    return CountBlocks(n, kPanelColumns) * kPanelColumns * PackedDepth(dtype, k);
  }
  void PackWeight(const PackWeightArgs& args) override {
    CRIA_CHECK(args.w.dtype() == args.packed.dtype(), args.w.ToString(), " to ",
               args.packed.ToString());
    constexpr int64_t kRowsPerItem = 4 * kPanelColumns;
    RunBlocks(kernels_.PackPanels, PackPanelsKernelArgs{args.w, args.packed, args.first_row},
              args.w.dim(0), kRowsPerItem);
  }
  void MatmulPacked(const MatmulPackedArgs& args) override {
    CRIA_CHECK_GE(args.packed.num_elements(),
                  PackedElements(args.packed.dtype(), args.c.dim(1), args.a.dim(1)));
    gemm_.RunPacked(args);
  }
  void PackedEmbedding(const PackedEmbeddingArgs& args) override {
    RunBlocks(kernels_.PackedEmbedding, args, args.out.dim(0), kRowsPerBlock);
  }

  Quantized Quantize(const QuantizeArgs& args) override {
    CRIA_CHECK(args.from.dim(0) == args.to.dim(0) && args.from.dim(1) == args.to.dim(1),
               "quantise ", args.from.ToString(), " to ", args.to.ToString());
    QuantizeOptions options = {.fixed_scale = args.fixed_scale};
    if (args.amax.defined()) {
      CheckGroups(args.amax, args.spec.unit, args.from);
      options.amax = args.amax.f32();
    }
    const QuantizeResult result =
        model::Quantize(args.spec, ToQuantize(args.from),
                        {args.to.data(), TypeToQuantize(args.to), args.to.stride(0)}, options);
    return {.dequant = result.dequant, .amax = result.amax};
  }

  void Amax(const AmaxArgs& args) override {
    CheckGroups(args.amax, args.unit, args.from);
    GroupAmax(args.unit, ToQuantize(args.from), args.amax.f32());
  }

  void RmsNormForward(const RmsNormForwardArgs& args) override {
    const int64_t rows = args.x.dim(0);
    CRIA_CHECK_EQ(args.y.dim(0), rows);
    CRIA_CHECK_EQ(args.weight.dim(0), args.x.dim(1));
    CRIA_CHECK_EQ(args.delta.defined(), args.sum.defined());
    RunBlocks(kernels_.RmsNormForward, args, rows, kRowsPerBlock);
  }

  void RmsNormBackward(const RmsNormBackwardArgs& args) override {
    const int64_t dim = args.x.dim(1);
    CRIA_CHECK_EQ(args.dy.dim(0), args.x.dim(0));
    const int64_t num_blocks = CountBlocks(args.x.dim(0), kRowsPerBlock);
    float* partial = Floats(&partial_, num_blocks * dim);
    RunBlocks(kernels_.RmsNormBackward, RmsNormBackwardKernelArgs{args, partial}, num_blocks, 1);
    float* dweight = args.dweight.f32();
    for (int64_t block = 0; block < num_blocks; ++block) {
      for (int64_t i = 0; i < dim; ++i) dweight[i] += partial[block * dim + i];
    }
  }

  void Rope(const RopeArgs& args) override {
    CRIA_CHECK_EQ(args.x.dim(1) % args.head_dim, 0);
    RunBlocks(kernels_.Rope, args, args.x.dim(0), kRowsPerBlock);
  }

  void AttentionForward(const AttentionForwardArgs& args) override {
    CheckAttention(args);
    if (args.key_cache.defined()) {
      CRIA_CHECK(args.batch == 1 && args.keys >= args.time, args.keys, " keys for ", args.batch,
                 " x ", args.time, " queries");
      const int64_t elements = CacheElements(args.keys, args.kv_heads, args.head_dim);
      CRIA_CHECK_GE(args.key_cache.num_elements(), elements);
      CRIA_CHECK_GE(args.value_cache.num_elements(), elements);
    } else {
      CheckKeys(args, args.k);
      CheckKeys(args, args.v);
    }
    const int64_t size = AttentionForwardScratch(args);
    float* scratch = Floats(&attention_, size * NumThreads());
    const int64_t items = args.batch * args.heads * CountBlocks(args.time, kAttentionChunk);
    // Multiply-adds that one thread does in less time than two take to meet.
    constexpr int64_t kSmallWork = int64_t{1} << 17;
    const int64_t keys = args.keys > 0 ? args.keys : args.time;
    if (2 * args.batch * args.heads * args.time * keys * args.head_dim <= kSmallWork) {
      kernels_.AttentionForward({args, scratch}, 0, items);
      return;
    }
    ParallelFor(items, [&](int64_t item) {
      kernels_.AttentionForward({args, scratch + ThreadIndex() * size}, item, item + 1);
    });
  }

  int64_t CacheElements(int64_t positions, int64_t kv_heads, int64_t head_dim) const override {
    return CountBlocks(positions, kAttentionTile) * kAttentionTile * kv_heads * head_dim;
  }

  void StoreKeyValues(const StoreKeyValuesArgs& args) override {
    CRIA_CHECK_EQ(args.k.dim(1), args.kv_heads * args.head_dim);
    CRIA_CHECK(args.k.dtype() == args.key_cache.dtype() && args.v.dtype() == args.k.dtype(),
               args.k.ToString(), " ", args.v.ToString());
    const int64_t elements =
        CacheElements(args.first + args.k.dim(0), args.kv_heads, args.head_dim);
    CRIA_CHECK_GE(args.key_cache.num_elements(), elements);
    CRIA_CHECK_GE(args.value_cache.num_elements(), elements);
    RunBlocks(kernels_.StoreKeyValues, args, args.k.dim(0), kRowsPerBlock);
  }

  void AttentionBackward(const AttentionBackwardArgs& args) override {
    CheckAttention(args.forward);
    for (const Tensor* x : {&args.forward.k, &args.forward.v, &args.dk, &args.dv}) {
      CheckKeys(args.forward, *x);
    }
    CRIA_CHECK(
        !args.accumulate || (args.dk.dtype() == DType::kF32 && args.dv.dtype() == DType::kF32),
        "accumulate into ", args.dk.ToString(), ", ", args.dv.ToString());
    const int64_t size = AttentionBackwardScratch(args.forward);
    float* scratch = Floats(&attention_, size * NumThreads());
    ParallelFor(args.forward.batch * args.forward.kv_heads, [&](int64_t item) {
      kernels_.AttentionBackward({args, scratch + ThreadIndex() * size}, item, item + 1);
    });
  }

  void SwigluForward(const SwigluForwardArgs& args) override {
    CRIA_CHECK_EQ(args.gate_up.dim(1), 2 * args.act.dim(1));
    RunBlocks(kernels_.SwigluForward, args, args.act.dim(0), kRowsPerBlock / 4);
  }

  void SwigluBackward(const SwigluBackwardArgs& args) override {
    CRIA_CHECK_EQ(args.gate_up.dim(1), 2 * args.dact.dim(1));
    RunBlocks(kernels_.SwigluBackward, args, args.dact.dim(0), kRowsPerBlock / 4);
  }

  void EmbeddingForward(const EmbeddingForwardArgs& args) override {
    CRIA_CHECK(args.tokens.dim(0) == args.out.dim(0) && args.table.dim(1) == args.out.dim(1),
               "rows of ", args.table.ToString(), " to ", args.out.ToString());
    RunBlocks(kernels_.EmbeddingForward, args, args.out.dim(0), kRowsPerBlock);
  }

  bool EmbeddingBackward(const EmbeddingBackwardArgs& args) override {
    CRIA_CHECK(args.tokens.dim(0) == args.dout.dim(0) && args.dtable.dim(1) == args.dout.dim(1),
               "rows of ", args.dtable.ToString(), " get ", args.dout.ToString());
    CheckFixed(args.log2_scale);
    constexpr int64_t kColumnsPerItem = 64;
    std::atomic<bool> all_fit = true;
    RunBlocks(kernels_.EmbeddingBackward, EmbeddingBackwardKernelArgs{args, &all_fit},
              args.dout.dim(1), kColumnsPerItem);
    return all_fit;
  }

  void Add(const AddArgs& args) override {
    CheckSameShape(args.a, args.b);
    CheckSameShape(args.a, args.out);
    RunBlocks(kernels_.Add, args, args.a.dim(0), kRowsPerBlock);
  }

  bool AddFixed(const AddFixedArgs& args) override {
    CheckSameShape(args.from, args.to);
    CheckFixed(args.log2_scale);
    std::atomic<bool> all_fit = true;
    RunPieces(args.from.dim(0), args.from.dim(1), [&](const auto& piece) {
      const AddFixedArgs some = {piece(args.from), piece(args.to), args.log2_scale};
      kernels_.AddFixed({some, &all_fit}, 0, some.from.dim(0));
    });
    return all_fit;
  }

  void FixedToFloat(const FixedToFloatArgs& args) override {
    CheckSameShape(args.from, args.to);
    CheckFixed(args.log2_scale);
    RunPieces(args.from.dim(0), args.from.dim(1), [&](const auto& piece) {
      const FixedToFloatArgs some = {piece(args.from), piece(args.to), args.log2_scale};
      kernels_.FixedToFloat(some, 0, some.from.dim(0));
    });
  }

  void CrossEntropy(const CrossEntropyArgs& args) override {
    for (int64_t row = 0; row < args.targets.dim(0); ++row) {
      CRIA_CHECK_LT(args.targets.i32()[row], args.logits.dim(1));
    }
    RunBlocks(kernels_.CrossEntropy, args, args.logits.dim(0), kLogitRows);
  }

  void LogitStats(const LogitStatsArgs& args) override {
    RunBlocks(kernels_.LogitStats, args, args.logits.dim(0), kLogitRows);
  }

  void LogitGradient(const LogitGradientArgs& args) override {
    CheckSameShape(args.logits, args.dlogits);
    CRIA_CHECK(args.logits.contiguous() && args.dlogits.contiguous(), args.logits.ToString(),
               " or the gradient is strided");
    RunBlocks(kernels_.LogitGradient, args, args.logits.dim(0), kLogitRows);
  }

  void AdamW(const AdamWArgs& args) override {
    RunBlocks(kernels_.AdamW, args, args.weight.num_elements(), kElementsPerBlock);
  }

  double SumOfSquares(const Tensor& x) override {
    const int64_t n = x.num_elements();
    const int64_t num_blocks = CountBlocks(n, kElementsPerBlock);
    if (static_cast<int64_t>(sums_.size()) < num_blocks) sums_.resize(num_blocks);
    RunBlocks(kernels_.SumOfSquares, SumOfSquaresKernelArgs{x.f32(), n, sums_.data()}, num_blocks,
              1);
    double total = 0;
    for (int64_t block = 0; block < num_blocks; ++block) total += sums_[block];
    return total;
  }

  void Zero(const Tensor& x) override {
    CRIA_CHECK(x.contiguous(), x.ToString(), " is strided");
    constexpr int64_t kBytesPerBlock = int64_t{1} << 20;
    const int64_t bytes = x.bytes();
    ParallelFor(CountBlocks(bytes, kBytesPerBlock), [&](int64_t block) {
      const int64_t begin = block * kBytesPerBlock;
      std::memset(static_cast<char*>(x.data()) + begin, 0,
                  static_cast<size_t>(std::min(bytes - begin, kBytesPerBlock)));
    });
  }

  void Copy(const Tensor& from, const Tensor& to) override {
    CRIA_CHECK_EQ(from.num_elements(), to.num_elements());
    if (from.num_dims() == 2 && to.num_dims() == 2) {
      CRIA_CHECK_EQ(from.dim(0), to.dim(0));
      RunBlocks(kernels_.Copy, CopyKernelArgs{from, to}, from.dim(0), kRowsPerBlock);
      return;
    }
    const int64_t n = from.num_elements();
    ParallelFor(CountBlocks(n, kElementsPerBlock), [&](int64_t block) {
      const int64_t begin = block * kElementsPerBlock;
      const int64_t end = std::min(n, begin + kElementsPerBlock);
      const Tensor from_row = from.View({1, n}).Columns(begin, end);
      const Tensor to_row = to.View({1, n}).Columns(begin, end);
      kernels_.Copy({from_row, to_row}, 0, 1);
    });
  }

 private:
  static float* Floats(std::vector<float>* memory, int64_t n) {
    if (static_cast<int64_t>(memory->size()) < n) {
      *memory = {};  // first, so that old and new are never held together
      *memory = std::vector<float>(n);
    }
    return memory->data();
  }

  static void CheckAttention(const AttentionForwardArgs& args) {
    CRIA_CHECK_EQ(args.q.dim(0), args.batch * args.time);
    CRIA_CHECK_EQ(args.q.dim(1), args.heads * args.head_dim);
    CRIA_CHECK_EQ(args.heads % args.kv_heads, 0);
  }

  // k or v, or one of their gradients.
  static void CheckKeys(const AttentionForwardArgs& args, const Tensor& x) {
    const int64_t keys = args.keys > 0 ? args.keys : args.time;
    CRIA_CHECK(x.dim(0) == args.batch * keys && x.dim(1) == args.kv_heads * args.head_dim,
               x.ToString(), " for ", keys, " keys of ", args.batch, " sequences");
    CRIA_CHECK(args.first_query >= 0 && args.first_query + args.time <= keys, args.time,
               " queries from ", args.first_query, " on of ", keys, " keys");
  }

  static void CheckSameShape(const Tensor& a, const Tensor& b) {
    CRIA_CHECK(a.dim(0) == b.dim(0) && a.dim(1) == b.dim(1), a.ToString(), " against ",
               b.ToString());
  }

  static void CheckFixed(int log2_scale) {
    CRIA_CHECK(-126 <= log2_scale && log2_scale <= 126, "scale 2^", log2_scale);
  }

  static ElementType TypeToQuantize(const Tensor& x) {
    return x.dtype() == DType::kBF16 ? ElementType::kBF16 : ElementType::kF32;
  }
  static QuantizeInput ToQuantize(const Tensor& x) {
    return {x.data(), TypeToQuantize(x), x.dim(0), x.dim(1), x.stride(0)};
  }
  static void CheckGroups(const Tensor& amax, ScaleUnit unit, const Tensor& x) {
    CRIA_CHECK_EQ(amax.num_elements(), NumScales(unit, x.dim(0), x.dim(1)));
  }

  const KernelTable& kernels_ = Kernels();
  Gemm gemm_;
  std::vector<float> partial_, attention_;
  std::vector<double> sums_;
};

}  // namespace

std::unique_ptr<Ops> NewCpuOps() { return std::make_unique<CpuOps>(); }

}  // namespace cria::model::cpu
