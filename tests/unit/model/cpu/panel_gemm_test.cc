// The forward product: each element one chain of fused multiply-adds, whatever surrounds it.

#include "model/cpu/panel_gemm.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/cpu.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "base/str.h"
#include "model/cpu/cpu_ops.h"

namespace cria::model::cpu {
namespace {

constexpr float kPoison = 77.0f;

// Numbers that are exact in bf16, so that one list serves both types.
class Numbers {
 public:
  Numbers(int64_t rows, int64_t columns, uint64_t stream) : rows_(rows), columns_(columns) {
    const Rng rng(5, stream);
    for (int64_t i = 0; i < rows * columns; ++i) {
      const auto bits =
          static_cast<uint16_t>(0x3e00u | (rng.U64(static_cast<uint64_t>(i)) & 0x81ffu));
      low_.push_back({bits});
      const uint32_t wide = static_cast<uint32_t>(bits) << 16;
      full_.push_back(std::bit_cast<float>(wide));
    }
  }
  Tensor As(DType type) {
    void* data = type == DType::kF32 ? static_cast<void*>(full_.data()) : low_.data();
    return Tensor(data, type, {rows_, columns_});
  }
  // fp32, [columns, rows].
  Tensor Transposed() {
    transposed_.clear();
    for (int64_t i = 0; i < rows_ * columns_; ++i) {
      transposed_.push_back(At(i % rows_, i / rows_));
    }
    return Tensor(transposed_.data(), DType::kF32, {columns_, rows_});
  }
  float At(int64_t row, int64_t column) const {
    return full_[static_cast<size_t>(row * columns_ + column)];
  }

 private:
  int64_t rows_, columns_;
  std::vector<float> full_, transposed_;
  std::vector<BF16> low_;
};

// The definition.
float Chain(const Numbers& a, int64_t row, const Numbers& w, int64_t column, int64_t depth) {
  float sum = 0;
  for (int64_t k = 0; k < depth; ++k) sum = std::fma(a.At(row, k), w.At(column, k), sum);
  return sum;
}

struct Case {
  int64_t m, n, k;
};
// Rows around the edges of register tiles and blocks, columns around panels and chunks, depths
// around kPanelDepth, odd and even.
constexpr Case kCases[] = {{1, 16, 8},     {1, 77, 255},   {2, 33, 257}, {3, 64, 512},
                           {6, 80, 31},    {7, 16, 256},   {13, 530, 1}, {25, 47, 300},
                           {241, 18, 513}, {300, 530, 40}, {500, 5, 3},  {9, 20, 0}};

class PanelGemmTest : public testing::TestWithParam<Case> {};

TEST_P(PanelGemmTest, IsOneChainOfMultiplyAddsForEveryOperandType) {
  const auto [m, n, k] = GetParam();
  Numbers a(m, k, 1), w(n, k, 2);
  const std::unique_ptr<Ops> ops = NewCpuOps();
  PanelGemm gemm;
  for (const DType w_type : {DType::kF32, DType::kBF16}) {
    std::vector<float> memory(static_cast<size_t>(ops->PackedElements(w_type, n, k)), 0.0f);
    const Tensor packed(memory.data(), w_type, {static_cast<int64_t>(memory.size())});
    // In two parts, as q and k of one matrix are.
    const int64_t half = n / 2;
    ops->PackWeight({w.As(w_type).Rows(0, half), packed, 0});
    ops->PackWeight({w.As(w_type).Rows(half, n), packed, half});
    for (const DType a_type : {DType::kF32, DType::kBF16}) {
      for (const bool is_packed : {false, true}) {
        // One column more, which must stay.
        std::vector<float> out(static_cast<size_t>(m * (n + 1)), kPoison);
        const Tensor c = Tensor(out.data(), DType::kF32, {m, n + 1}).Columns(0, n);
        gemm.Run({.a = a.As(a_type),
                  .w = is_packed ? Tensor() : w.As(w_type),
                  .packed = is_packed ? packed : Tensor(),
                  .c = c});
        for (int64_t row = 0; row < m; ++row) {
          for (int64_t column = 0; column < n; ++column) {
            const float want = Chain(a, row, w, column, k);
            // Without fused multiply-add (the generic set) the products round too.
            const float got = out[static_cast<size_t>(row * (n + 1) + column)];
            if (ActiveIsa() != Isa::kGeneric) {
              ASSERT_EQ(got, want) << row << "," << column << " packed " << is_packed;
            } else {
              ASSERT_NEAR(got, want, 1e-5 * static_cast<double>(k)) << row << "," << column;
            }
          }
          ASSERT_EQ(out[static_cast<size_t>(row * (n + 1) + n)], kPoison);
        }
      }
    }
  }
}

TEST_P(PanelGemmTest, RowsAreTheSameBitsAloneAndTogetherForAnyThreads) {
  const auto [m, n, k] = GetParam();
  Numbers a(m, k, 1), w(n, k, 2);
  std::vector<BF16> together(static_cast<size_t>(m * n)), alone(static_cast<size_t>(n));
  SetNumThreads(3);
  PanelGemm gemm;
  gemm.Run({.a = a.As(DType::kF32),
            .w = w.As(DType::kF32),
            .c = Tensor(together.data(), DType::kBF16, {m, n})});
  SetNumThreads(2);
  for (int64_t row = 0; row < m; row += 5) {
    gemm.Run({.a = a.As(DType::kF32).Rows(row, row + 1),
              .w = w.As(DType::kF32),
              .c = Tensor(alone.data(), DType::kBF16, {1, n})});
    for (int64_t j = 0; j < n; ++j) {
      ASSERT_EQ(together[static_cast<size_t>(row * n + j)].bits,
                alone[static_cast<size_t>(j)].bits);
    }
  }
}

TEST_P(PanelGemmTest, TransposedOperandsSumsAndScalesDoNotChangeTheChain) {
  const auto [m, n, k] = GetParam();
  Numbers a(m, k, 1), w(n, k, 2), before(m, n, 3);
  PanelGemm gemm;
  std::vector<float> chains(static_cast<size_t>(m * n));
  gemm.Run({.a = a.As(DType::kF32),
            .w = w.As(DType::kF32),
            .c = Tensor(chains.data(), DType::kF32, {m, n})});
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_w : {false, true}) {
      for (const float scale : {1.0f, 0.3f}) {  // a product that is scaled is rounded, then added
        for (const bool accumulate : {false, true}) {
          std::vector<float> out(static_cast<size_t>(m * (n + 1)), kPoison);
          const Tensor c = Tensor(out.data(), DType::kF32, {m, n + 1}).Columns(0, n);
          for (int64_t i = 0; i < m * n; ++i)
            c.f32()[i / n * (n + 1) + i % n] = before.At(i / n, i % n);
          gemm.Run({.a = transpose_a ? a.Transposed() : a.As(DType::kF32),
                    .w = transpose_w ? w.Transposed() : w.As(DType::kF32),
                    .c = c,
                    .transpose_a = transpose_a,
                    .transpose_w = transpose_w,
                    .accumulate = accumulate,
                    .scale = scale});
          for (int64_t i = 0; i < m * n; ++i) {
            const float product = scale * chains[static_cast<size_t>(i)];
            const float want = accumulate ? before.At(i / n, i % n) + product : product;
            ASSERT_EQ(out[static_cast<size_t>(i / n * (n + 1) + i % n)], want)
                << i << " transposed " << transpose_a << transpose_w << " scale " << scale
                << " accumulate " << accumulate;
          }
          for (int64_t row = 0; row < m; ++row) {
            ASSERT_EQ(out[static_cast<size_t>(row * (n + 1) + n)], kPoison);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PanelGemmTest, testing::ValuesIn(kCases), [](const auto& info) {
  return StrCat(info.param.m, "x", info.param.n, "x", info.param.k);
});

TEST(PackedEmbeddingTest, GivesTheRowsThatWerePacked) {
  constexpr int64_t kVocab = 37, kDim = 9;
  Numbers table(kVocab, kDim, 3);
  const std::unique_ptr<Ops> ops = NewCpuOps();
  std::vector<int32_t> tokens = {0, 36, 16, 15, 36};
  for (const DType type : {DType::kF32, DType::kBF16}) {
    std::vector<float> memory(static_cast<size_t>(ops->PackedElements(type, kVocab, kDim)));
    const Tensor packed(memory.data(), type, {static_cast<int64_t>(memory.size())});
    ops->PackWeight({table.As(type), packed, 0});
    std::vector<float> out(tokens.size() * kDim);
    const auto rows = static_cast<int64_t>(tokens.size());
    ops->PackedEmbedding({Tensor(tokens.data(), DType::kI32, {rows}), packed,
                          Tensor(out.data(), DType::kF32, {rows, kDim})});
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = 0; j < kDim; ++j) {
        EXPECT_EQ(out[static_cast<size_t>(row * kDim + j)],
                  table.At(tokens[static_cast<size_t>(row)], j));
      }
    }
  }
}

}  // namespace
}  // namespace cria::model::cpu
