// What tests of operations share: tensors with their values in double, comparison by one table of
// tolerances, and numerical gradients of a reference.
//
//   const TestTensor x = TestTensor::Random(DType::kBF16, 33, 96, /*seed=*/1, /*padding=*/8);
//   const auto out = OnAnyThreads(Backends()[0], [&](Ops& ops) {
//     const TestTensor act(DType::kBF16, 33, 48);
//     ops.SwigluForward({.gate_up = x.matrix(), .act = act.matrix()});
//     return std::vector{act};
//   });
//   ExpectClose(Op::kSwiglu, out[0], reference::Swiglu(x.values(), 48), "act");
//   ExpectGradient(Op::kSwiglu, dx, x.values(), loss, "dx");  // loss: of x's values in double
//
// Single-threaded. Values are a function of the seed.

#ifndef CRIA_TESTS_UNIT_MODEL_OP_HARNESS_H_
#define CRIA_TESTS_UNIT_MODEL_OP_HARNESS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/ops.h"
#include "model/tensor.h"

namespace cria::model {

// One backend under test.
struct Backend {
  std::string name;
  std::function<std::unique_ptr<Ops>()> make;
};
std::vector<Backend> Backends();

// A [rows, cols] matrix, its memory, and guard elements after each row that nobody may write.
class TestTensor {
 public:
  TestTensor(DType dtype, int64_t rows, int64_t cols, int64_t padding = 0);
  // Normal-like values around zero with standard deviation `scale`.
  static TestTensor Random(DType dtype, int64_t rows, int64_t cols, uint64_t seed,
                           int64_t padding = 0, double scale = 1);
  static TestTensor Of(DType dtype, int64_t rows, int64_t cols, const std::vector<double>& values);
  static TestTensor OfIndices(const std::vector<int32_t>& values);

  // Views of the memory: [rows, cols], and [rows * cols] of a tensor without padding.
  Tensor matrix() const;
  Tensor vector() const;

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  void Set(int64_t row, int64_t col, double value);  // rounded to the type
  double At(int64_t row, int64_t col) const;
  std::vector<double> values() const;
  std::vector<int32_t> indices() const;
  bool guards_intact() const;
  // The memory, guards included: for comparing bits.
  const std::vector<char>& bytes() const { return memory_; }

 private:
  DType dtype_;
  int64_t rows_, cols_, stride_;
  std::vector<char> memory_;
};

// Runs `run` on a new object of the backend with 1, 2 and 3 threads, expects equal bits and returns
// them. `run` must make its outputs inside.
std::vector<TestTensor> OnAnyThreads(const Backend& backend,
                                     const std::function<std::vector<TestTensor>(Ops&)>& run);

// Rows of the table of tolerances.
enum class Op {
  kMatmul,
  kRmsNorm,
  kRmsNormBackward,
  kRope,
  kAttention,
  kAttentionBackward,
  kSwiglu,
  kSwigluBackward,
  kEmbedding,
  kCrossEntropy,
  kCrossEntropyBackward,
  kAdamW,
  kSumOfSquares,
};

// The largest error that a result of this type may have, relative to the largest value wanted.
double Tolerance(Op op, DType dtype);

// Each element within Tolerance(op, got.dtype()) * (largest |want|), guards intact.
void ExpectClose(Op op, const TestTensor& got, const std::vector<double>& want,
                 const std::string& what);

// `got` against the numerical gradient of `loss` at `x`, at up to 60 elements spread over x.
void ExpectGradient(Op op, const TestTensor& got, const std::vector<double>& x,
                    const std::function<double(const std::vector<double>&)>& loss,
                    const std::string& what);

// The fourth-order numerical derivative of `loss` along x's element i: off by about 1e-12 of what
// the loss and its fifth derivative are.
double NumericGradient(const std::vector<double>& x, size_t i,
                       const std::function<double(const std::vector<double>&)>& loss);

// sum_i weight_i value_i: makes a loss of an operation's output.
double Dot(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace cria::model

#endif  // CRIA_TESTS_UNIT_MODEL_OP_HARNESS_H_
