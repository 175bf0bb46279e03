// Signals while oneDNN computes. Its kernels keep data in the stack pointer: a handler that ran on
// their thread would write its frame over operands, results or the heap.

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/stop_signals.h"
#include "model/cpu/gemm.h"

namespace cria::model::cpu {
namespace {

constexpr int kRounds = 400;

// Gradients of a small head, of its input, and products larger than a cache.
struct Case {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};
constexpr Case kCases[] = {
    {300, 32, 128, true, false}, {128, 32, 300, false, false}, {256, 512, 256, false, true}};

std::vector<float> RandomFloats(int64_t n, uint64_t stream) {
  const Rng rng(7, stream);
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = rng.Normal(i);
  return x;
}

std::vector<float> Product(Gemm* gemm, const Case& c, std::vector<float>* a,
                           std::vector<float>* b) {
  std::vector<float> out(static_cast<size_t>(c.m * c.n));
  const auto matrix = [](std::vector<float>* x, int64_t rows, int64_t columns) {
    return Tensor(x->data(), DType::kF32, {rows, columns});
  };
  gemm->Run({.a = c.transpose_a ? matrix(a, c.k, c.m) : matrix(a, c.m, c.k),
             .b = c.transpose_b ? matrix(b, c.n, c.k) : matrix(b, c.k, c.n),
             .c = matrix(&out, c.m, c.n),
             .transpose_a = c.transpose_a,
             .transpose_b = c.transpose_b});
  return out;
}

TEST(GemmSignalsTest, AStormOfSignalsChangesNoBit) {
  StopSignals signals;
  std::atomic<int64_t> num_signals{0};
  signals.Take([&](int) { ++num_signals; });
  std::atomic<bool> done{false};
  std::thread storm([&] {
    while (!done) {
      kill(getpid(), SIGTERM);
      std::this_thread::yield();
    }
  });
  Gemm gemm;
  for (const Case& c : kCases) {
    const std::vector<float> a = RandomFloats(c.m * c.k, 1), b = RandomFloats(c.k * c.n, 2);
    std::vector<float> a_used = a, b_used = b;
    const std::vector<float> expected = Product(&gemm, c, &a_used, &b_used);
    const int64_t seen_before = num_signals;
    for (int round = 0; round < kRounds || num_signals == seen_before; ++round) {
      ASSERT_EQ(Product(&gemm, c, &a_used, &b_used), expected) << "round " << round;
      ASSERT_EQ(a_used, a);
      ASSERT_EQ(b_used, b);
    }
  }
  done = true;
  storm.join();
}

}  // namespace
}  // namespace cria::model::cpu
