#include "model/fp8/quantize.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "base/cpu.h"
#include "base/parallel.h"
#include "model/fp8/quantize_kernels.h"
#include "model/fp8/scale.h"

namespace cria::model {
namespace fp8_internal {
namespace {

// How matrices are cut into items for threads: by sizes alone.
constexpr int64_t kItemElements = 16384;  // 64 KiB of fp32: both passes over it hit the cache
constexpr int64_t kStripColumns = 512;    // times 128 rows: 256 KiB of fp32; whole blocks

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Raises *shared to `bits` among threads; maxima have no order.
void RaiseShared(uint32_t* shared, uint32_t bits) {
  std::atomic_ref<uint32_t> target(*shared);
  uint32_t seen = target.load(std::memory_order_relaxed);
  while (seen < bits && !target.compare_exchange_weak(seen, bits, std::memory_order_relaxed)) {
  }
}

// The largest magnitude of several threads' items.
class SharedAmax {
 public:
  void Raise(uint32_t bits) { RaiseShared(&bits_, bits); }
  // After the loop.
  float value() const { return std::bit_cast<float>(bits_); }

 private:
  uint32_t bits_ = 0;
};

struct Rectangle {
  int64_t row, col, rows, cols;
};

// One call's arguments with the kernels that fit its types.
class Quantizer {
 public:
  Quantizer(const Kernels& kernels, const QuantizeSpec& spec, const QuantizeInput& in,
            const QuantizeOutput& out, const QuantizeOptions& options, float* group_amax = nullptr)
      : in_(in),
        out_(out),
        options_(options),
        group_amax_(group_amax),
        format_(spec.format),
        grid_(GridOf(spec.format)),
        in_type_(static_cast<int>(in.type)),
        out_type_(out.type == ElementType::kF32 ? kToF32 : kToBF16),
        kernels_(kernels) {}

  // Any unit.
  QuantizeResult Run(ScaleUnit unit);

 private:
  QuantizeResult Tensor();
  void Rows();
  void Columns();
  void RowBlocks();
  void Blocks(int64_t cols_per_scale);

  float amax() const { return amax_.value(); }
  Source In(const Rectangle& r) const {
    const int64_t bytes = in_.type == ElementType::kF32 ? 4 : 2;
    return {static_cast<const std::byte*>(in_.data) + (r.row * in_.row_stride + r.col) * bytes,
            in_.row_stride, r.rows, r.cols};
  }
  uint32_t AmaxBits(const Rectangle& r) const {
    uint32_t bits = 0;
    kernels_.amax[in_type_](In(r), &bits);
    return bits;
  }
  // The amax of group `index`, of which `bits` was found here (nothing where it is given); reports
  // it.
  float GroupsAmax(int64_t index, uint32_t bits) {
    if (options_.amax != nullptr) bits = std::bit_cast<uint32_t>(options_.amax[index]);
    amax_.Raise(bits);
    const float amax = std::bit_cast<float>(bits);
    if (group_amax_ != nullptr) group_amax_[index] = amax;
    return amax;
  }
  bool amax_is_given() const { return options_.amax != nullptr; }
  // Rounds a rectangle with kernels that take one scale and fold, or one for each column.
  void Round(const RoundFn (&round)[3], const Rectangle& r, const float* scales,
             const float* folds) const;
  // One group of numbers that share a power of two.
  void Group(const Rectangle& r, int64_t scale_index);
  void StoreScale(int64_t index, float dequant) const {
    if (options_.dequant_scales != nullptr) options_.dequant_scales[index] = dequant;
  }
  // Calls body(rectangle) on threads for pieces of at most kItemElements.
  template <typename Body>
  void ForPieces(const Body& body) const;

  const QuantizeInput in_;
  const QuantizeOutput out_;
  const QuantizeOptions options_;
  float* const group_amax_;  // out, or null
  const Fp8Format format_;
  const Grid& grid_;
  const int in_type_;
  const int out_type_;
  const Kernels& kernels_;
  SharedAmax amax_;
};

template <typename Body>
void Quantizer::ForPieces(const Body& body) const {
  if (in_.rows == 0 || in_.cols == 0) return;
  const int64_t piece_cols = std::min<int64_t>(in_.cols, kItemElements);
  const int64_t piece_rows = std::max<int64_t>(1, kItemElements / piece_cols);
  const int64_t pieces_across = CeilDiv(in_.cols, piece_cols);
  ParallelFor(pieces_across * CeilDiv(in_.rows, piece_rows), [&](int64_t item) {
    const int64_t row = item / pieces_across * piece_rows;
    const int64_t col = item % pieces_across * piece_cols;
    body(Rectangle{row, col, std::min(piece_rows, in_.rows - row),
                   std::min(piece_cols, in_.cols - col)});
  });
}

void Quantizer::Round(const RoundFn (&round)[3], const Rectangle& r, const float* scales,
                      const float* folds) const {
  // Codes first: the values may overwrite the input.
  if (options_.codes != nullptr) {
    round[kToCode](In(r), scales, folds, grid_,
                   options_.codes + r.row * options_.codes_row_stride + r.col,
                   options_.codes_row_stride);
  }
  if (out_.data != nullptr) {
    const int64_t bytes = out_.type == ElementType::kF32 ? 4 : 2;
    round[out_type_](In(r), scales, folds, grid_,
                     static_cast<std::byte*>(out_.data) + (r.row * out_.row_stride + r.col) * bytes,
                     out_.row_stride);
  }
}

void Quantizer::Group(const Rectangle& r, int64_t scale_index) {
  const float amax = GroupsAmax(scale_index, amax_is_given() ? 0 : AmaxBits(r));
  const float scale = PowerOfTwoScale(format_, amax);
  const float fold = InversePowerOfTwo(scale);
  Round(kernels_.round[in_type_], r, &scale, &fold);
  StoreScale(scale_index, fold);
}

QuantizeResult Quantizer::Tensor() {
  const float no_fold = 1;
  float scale = options_.fixed_scale;
  const bool is_fixed = scale != 0;
  if (!is_fixed) {
    if (!amax_is_given()) ForPieces([&](const Rectangle& r) { amax_.Raise(AmaxBits(r)); });
    scale = CurrentScale(format_, GroupsAmax(0, std::bit_cast<uint32_t>(amax())));
  }
  ForPieces([&](const Rectangle& r) {
    if (is_fixed) amax_.Raise(AmaxBits(r));
    Round(kernels_.round[in_type_], r, &scale, &no_fold);
  });
  StoreScale(0, 1 / scale);
  return {1 / scale, amax()};
}

void Quantizer::Rows() {
  const int64_t rows_per_item = std::max<int64_t>(1, kItemElements / in_.cols);
  ParallelFor(CeilDiv(in_.rows, rows_per_item), [&](int64_t item) {
    const int64_t begin = item * rows_per_item;
    const int64_t end = std::min(begin + rows_per_item, in_.rows);
    for (int64_t row = begin; row < end; ++row) Group({row, 0, 1, in_.cols}, row);
  });
}

// Blocks of one row.
void Quantizer::RowBlocks() {
  const int64_t blocks = CeilDiv(in_.cols, kFp8BlockSize);
  const int64_t rows_per_item = std::max<int64_t>(1, kItemElements / in_.cols);
  ParallelFor(CeilDiv(in_.rows, rows_per_item), [&](int64_t item) {
    const int64_t begin = item * rows_per_item;
    const int64_t end = std::min(begin + rows_per_item, in_.rows);
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t col = block * kFp8BlockSize;
        Group({row, col, 1, std::min(kFp8BlockSize, in_.cols - col)}, row * blocks + block);
      }
    }
  });
}

// Blocks of 128 rows by cols_per_scale (1 or 128) columns, in strips of rows that the cache holds.
void Quantizer::Blocks(int64_t cols_per_scale) {
  const int64_t strips = CeilDiv(in_.cols, kStripColumns);
  const int64_t scales_across = CeilDiv(in_.cols, cols_per_scale);
  ParallelFor(strips * CeilDiv(in_.rows, kFp8BlockSize), [&](int64_t item) {
    const int64_t down = item / strips;
    const int64_t row = down * kFp8BlockSize;
    const int64_t col = item % strips * kStripColumns;
    const Rectangle r = {row, col, std::min(kFp8BlockSize, in_.rows - row),
                         std::min(kStripColumns, in_.cols - col)};
    uint32_t amax_bits[kStripColumns] = {};
    if (!amax_is_given()) kernels_.column_amax[in_type_](In(r), amax_bits);
    float scales[kStripColumns];
    float folds[kStripColumns];
    for (int64_t begin = 0; begin < r.cols; begin += cols_per_scale) {
      const int64_t end = std::min(begin + cols_per_scale, r.cols);
      const int64_t group = down * scales_across + (col + begin) / cols_per_scale;
      const float amax = GroupsAmax(group, *std::max_element(amax_bits + begin, amax_bits + end));
      const float scale = PowerOfTwoScale(format_, amax);
      std::fill(scales + begin, scales + end, scale);
      const float fold = InversePowerOfTwo(scale);
      std::fill(folds + begin, folds + end, fold);
      StoreScale(group, fold);
    }
    Round(kernels_.round_columns[in_type_], r, scales, folds);
  });
}

// Whole columns: threads share the rows, in both passes.
void Quantizer::Columns() {
  thread_local std::vector<uint32_t> amax_bits;
  thread_local std::vector<float> scales;
  thread_local std::vector<float> folds;
  amax_bits.assign(static_cast<size_t>(in_.cols), 0);
  scales.resize(amax_bits.size());
  folds.resize(amax_bits.size());
  // Threads have vectors of these names of their own: this one's must come in by pointer.
  uint32_t* const shared_bits = amax_bits.data();
  if (!amax_is_given())
    ForPieces([&, shared_bits](const Rectangle& r) {
      for (int64_t col = r.col; col < r.col + r.cols; col += kStripColumns) {
        const int64_t cols = std::min(kStripColumns, r.col + r.cols - col);
        uint32_t strip_bits[kStripColumns] = {};
        kernels_.column_amax[in_type_](In({r.row, col, r.rows, cols}), strip_bits);
        for (int64_t i = 0; i < cols; ++i) RaiseShared(&shared_bits[col + i], strip_bits[i]);
      }
    });
  for (int64_t c = 0; c < in_.cols; ++c) {
    scales[c] = PowerOfTwoScale(format_, GroupsAmax(c, amax_bits[c]));
    folds[c] = InversePowerOfTwo(scales[c]);
    StoreScale(c, folds[c]);
  }
  const float* const shared_scales = scales.data();
  const float* const shared_folds = folds.data();
  ForPieces([&, shared_scales, shared_folds](const Rectangle& r) {
    Round(kernels_.round_columns[in_type_], r, shared_scales + r.col, shared_folds + r.col);
  });
}

QuantizeResult Quantizer::Run(ScaleUnit unit) {
  if (unit == ScaleUnit::kTensor) return Tensor();
  if (in_.rows == 0 || in_.cols == 0) {
    // Columns of no rows and rows of no columns are groups all the same.
    if (group_amax_ != nullptr) std::fill_n(group_amax_, NumScales(unit, in_.rows, in_.cols), 0.0f);
    return {};
  }
  switch (unit) {
    case ScaleUnit::kTensor:
      break;
    case ScaleUnit::kPerRow:
      Rows();
      break;
    case ScaleUnit::kPerColumn:
      Columns();
      break;
    case ScaleUnit::kRow1x128:
      RowBlocks();
      break;
    case ScaleUnit::kCol128x1:
      Blocks(1);
      break;
    case ScaleUnit::kBlock128x128:
      Blocks(kFp8BlockSize);
      break;
  }
  return {1, amax()};
}

// Rows that follow each other without a gap, as one long row.
void FlattenIfContiguous(QuantizeInput* in, const QuantizeOutput& out,
                         const QuantizeOptions& options) {
  const bool contiguous = in->row_stride == in->cols &&
                          (out.data == nullptr || out.row_stride == in->cols) &&
                          (options.codes == nullptr || options.codes_row_stride == in->cols);
  if (!contiguous) return;
  in->cols *= in->rows;
  in->row_stride = in->cols;
  in->rows = 1;
}

}  // namespace

const Grid& GridOf(Fp8Format format) {
  static constexpr Grid kGrids[] = {
      {E4M3::kMax, 0x1p8f, E4M3::kMinNormal, 0x1p20f, 1 / E4M3::kMinSubnormal, E4M3::kMantissaBits,
       E4M3::kBias},
      {E5M2::kMax, 0x1p15f, E5M2::kMinNormal, 0x1p21f, 1 / E5M2::kMinSubnormal, E5M2::kMantissaBits,
       E5M2::kBias},
  };
  return kGrids[static_cast<int>(format)];
}

const Kernels& KernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return generic::kKernels;
    case Isa::kAvx2:
      return avx2::kKernels;
    case Isa::kAvx512:
      return avx512::kKernels;
  }
  return generic::kKernels;
}

QuantizeResult QuantizeWith(const Kernels& kernels, const QuantizeSpec& spec,
                            const QuantizeInput& in, const QuantizeOutput& out,
                            const QuantizeOptions& options) {
  CRIA_CHECK(spec.pow2_scale || spec.unit == ScaleUnit::kTensor,
             "rows, columns and blocks need power-of-two scales");
  CRIA_CHECK(!spec.pow2_scale || spec.unit != ScaleUnit::kTensor,
             "a tensor's scale isn't rounded to a power of two in any recipe");
  CRIA_CHECK(options.fixed_scale >= 0 && options.fixed_scale <= kMaxFloat, "fixed_scale ",
             options.fixed_scale);
  CRIA_CHECK(options.fixed_scale == 0 || spec.unit == ScaleUnit::kTensor,
             "only a tensor's scale can be fixed");
  CRIA_CHECK(options.fixed_scale == 0 || options.amax == nullptr, "a scale and an amax");
  CRIA_CHECK(in.rows >= 0 && in.cols >= 0 && in.row_stride >= in.cols, in.rows, " x ", in.cols,
             ", stride ", in.row_stride);
  QuantizeInput matrix = in;
  if (spec.unit == ScaleUnit::kTensor) FlattenIfContiguous(&matrix, out, options);
  return Quantizer(kernels, spec, matrix, out, options).Run(spec.unit);
}

}  // namespace fp8_internal

QuantizeResult Quantize(const QuantizeSpec& spec, const QuantizeInput& in,
                        const QuantizeOutput& out, const QuantizeOptions& options) {
  return fp8_internal::QuantizeWith(fp8_internal::KernelsFor(ActiveIsa()), spec, in, out, options);
}

float Amax(const QuantizeInput& in) {
  float amax = 0;
  GroupAmax(ScaleUnit::kTensor, in, &amax);
  return amax;
}

void GroupAmax(ScaleUnit unit, const QuantizeInput& in, float* amax) {
  fp8_internal::Quantizer(fp8_internal::KernelsFor(ActiveIsa()), {}, in, {}, {}, amax).Run(unit);
}

int64_t NumScales(ScaleUnit unit, int64_t rows, int64_t cols) {
  const int64_t row_blocks = (rows + kFp8BlockSize - 1) / kFp8BlockSize;
  const int64_t col_blocks = (cols + kFp8BlockSize - 1) / kFp8BlockSize;
  switch (unit) {
    case ScaleUnit::kTensor:
      return 1;
    case ScaleUnit::kPerRow:
      return rows;
    case ScaleUnit::kPerColumn:
      return cols;
    case ScaleUnit::kRow1x128:
      return rows * col_blocks;
    case ScaleUnit::kCol128x1:
      return row_blocks * cols;
    case ScaleUnit::kBlock128x128:
      return row_blocks * col_blocks;
  }
  return 0;
}

}  // namespace cria::model
