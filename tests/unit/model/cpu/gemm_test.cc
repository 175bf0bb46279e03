// model/cpu/gemm.h: both paths compute the same products. The path of AVX-512 CPUs, with its packed
// weights, runs here in fp32 on any CPU (and in bf16 where the CPU has it).

#include "model/cpu/gemm.h"

#include <cmath>
#include <vector>

#include "base/cpu.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "gtest/gtest.h"

namespace cria::model::cpu {
namespace {

std::vector<float> RandomFloats(int64_t n, uint64_t stream) {
  const Rng rng(7, stream);
  std::vector<float> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    x[static_cast<size_t>(i)] = rng.Normal(static_cast<uint64_t>(i));
  }
  return x;
}

struct Case {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// Sizes that make one tile, several tiles of rows (equal and not), tiles of columns.
constexpr Case kCases[] = {
    {64, 48, 32, false, true},   {256, 96, 40, false, true},   {520, 33, 17, false, true},
    {2048, 24, 16, false, true}, {2048, 16, 24, false, false}, {300, 70, 65, true, false},
    {64, 1300, 20, false, true}, {17, 1, 1, false, false},     {1, 9, 130, false, true},
};

Tensor Matrix(std::vector<float>* x, int64_t rows, int64_t columns) {
  return Tensor(x->data(), DType::kF32, {rows, columns});
}

std::vector<float> Product(Gemm* gemm, const Case& c, std::vector<float>* a, std::vector<float>* b,
                           bool weight, float scale = 1) {
  std::vector<float> out(static_cast<size_t>(c.m * c.n));
  gemm->Run({.a = c.transpose_a ? Matrix(a, c.k, c.m) : Matrix(a, c.m, c.k),
             .b = c.transpose_b ? Matrix(b, c.n, c.k) : Matrix(b, c.k, c.n),
             .c = Matrix(&out, c.m, c.n),
             .transpose_a = c.transpose_a,
             .transpose_b = c.transpose_b,
             .scale = scale,
             .b_is_weight = weight,
             .keep_b = weight});
  return out;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& want, int64_t k) {
  ASSERT_EQ(got.size(), want.size());
  const double limit = 4e-6 * std::sqrt(static_cast<double>(k)) + 1e-6;
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], limit) << "element " << i;
}

TEST(GemmTest, PathsAgreeWithAndWithoutPackedWeights) {
  Gemm sgemm(Gemm::Path::kSgemm), primitives(Gemm::Path::kPrimitives);
  for (const Case& c : kCases) {
    std::vector<float> a = RandomFloats(c.m * c.k, 1), b = RandomFloats(c.n * c.k, 2);
    const std::vector<float> want = Product(&sgemm, c, &a, &b, false);
    for (const float scale : {1.0f, 0.25f}) {
      std::vector<float> scaled = want;
      for (float& x : scaled) x *= scale;
      ExpectNear(Product(&primitives, c, &a, &b, false, scale), scaled, c.k);
      ExpectNear(Product(&primitives, c, &a, &b, true, scale), scaled, c.k);
    }
  }
}

TEST(GemmTest, PackedWeightsAreRenewedWhenTheyChange) {
  Gemm sgemm(Gemm::Path::kSgemm), primitives(Gemm::Path::kPrimitives);
  const Case c = {520, 33, 17, false, false};  // forward products are not packed
  std::vector<float> a = RandomFloats(c.m * c.k, 1), b = RandomFloats(c.n * c.k, 2);
  Product(&primitives, c, &a, &b, true);

  for (float& x : b) x = -x;
  primitives.WeightsChanged();

  ExpectNear(Product(&primitives, c, &a, &b, true), Product(&sgemm, c, &a, &b, false), c.k);
}

TEST(GemmTest, ResultsDoNotDependOnThreads) {
  for (const Gemm::Path path : {Gemm::Path::kSgemm, Gemm::Path::kPrimitives}) {
    for (const Case& c : kCases) {
      std::vector<float> a = RandomFloats(c.m * c.k, 1), b = RandomFloats(c.n * c.k, 2);
      SetNumThreads(1);
      Gemm one(path);
      const std::vector<float> want = Product(&one, c, &a, &b, true);
      SetNumThreads(3);
      Gemm three(path);
      EXPECT_EQ(Product(&three, c, &a, &b, true), want) << c.m << "x" << c.n << "x" << c.k;
    }
  }
  SetNumThreads(2);
}

TEST(GemmTest, Bf16PrimitivesAgreeWithWidenedOperands) {
  if (!CpuHasBf16()) GTEST_SKIP() << "this CPU has no bf16 dot products (AVX512_BF16)";
  Gemm sgemm(Gemm::Path::kSgemm), primitives(Gemm::Path::kPrimitives);
  for (const Case& c : kCases) {
    std::vector<BF16> a(static_cast<size_t>(c.m * c.k)), b(static_cast<size_t>(c.n * c.k));
    const Rng rng(9, 3);
    for (size_t i = 0; i < a.size(); ++i) a[i].bits = 0x3f00 | (rng.U64(i) & 0x80ff);
    for (size_t i = 0; i < b.size(); ++i) b[i].bits = 0x3f00 | (rng.U64(i + (1 << 20)) & 0x80ff);
    const auto product = [&](Gemm* gemm, bool weight) {
      std::vector<float> out(static_cast<size_t>(c.m * c.n));
      const auto matrix = [](std::vector<BF16>* x, int64_t rows, int64_t columns) {
        return Tensor(x->data(), DType::kBF16, {rows, columns});
      };
      gemm->Run({.a = c.transpose_a ? matrix(&a, c.k, c.m) : matrix(&a, c.m, c.k),
                 .b = c.transpose_b ? matrix(&b, c.n, c.k) : matrix(&b, c.k, c.n),
                 .c = Matrix(&out, c.m, c.n),
                 .transpose_a = c.transpose_a,
                 .transpose_b = c.transpose_b,
                 .b_is_weight = weight,
                 .keep_b = weight});
      return out;
    };
    const std::vector<float> want = product(&sgemm, false);
    ExpectNear(product(&primitives, false), want, c.k);
    ExpectNear(product(&primitives, true), want, c.k);
  }
}

}  // namespace
}  // namespace cria::model::cpu
