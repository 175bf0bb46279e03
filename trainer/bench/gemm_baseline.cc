#include "trainer/bench/gemm_baseline.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>

#include "base/check.h"
#include "base/cpu.h"
#include "model/llama/parameters.h"

namespace cria::trainer {
namespace {

using dnnl::memory;

// Small numbers of both signs, exact in bf16 too.
float Filler(size_t i) { return static_cast<float>(static_cast<int>(i * 7 % 31) - 15) / 16.0f; }

// Bytes of fp32 or bf16 operands; a bf16 buffer is the upper halves of the same numbers.
struct Buffer {
  std::vector<float> f32;
  std::vector<uint16_t> bf16;

  void Grow(int64_t n, bool with_bf16) {
    for (size_t i = f32.size(); i < static_cast<size_t>(n); ++i) f32.push_back(Filler(i));
    if (!with_bf16) return;
    for (size_t i = bf16.size(); i < static_cast<size_t>(n); ++i) {
      const float value = Filler(i);
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof(bits));
      bf16.push_back(static_cast<uint16_t>(bits >> 16));
    }
  }
};

memory::desc Matrix(int64_t rows, int64_t columns, bool transposed, memory::data_type type) {
  return {{rows, columns}, type, transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

}  // namespace

std::vector<GemmShape> StepGemms(const model::LlamaConfig& config, int64_t tokens, bool bf16) {
  const int64_t qkv = config.QDim() + 2 * config.KvDim();
  std::vector<GemmShape> shapes;
  const auto add = [&](int64_t out, int64_t in, int64_t count, bool logits) {
    // The head's logits are fp32 whatever the operands are; so are weight gradients.
    shapes.push_back({tokens, out, in, false, true, bf16, bf16 && !logits, count});
    shapes.push_back({tokens, in, out, false, false, bf16, bf16, count});
    shapes.push_back({out, in, tokens, true, false, bf16, false, count});
  };
  add(qkv, config.dim, config.layers, false);
  add(config.dim, config.QDim(), config.layers, false);
  add(2 * config.ffn, config.dim, config.layers, false);
  add(config.dim, config.ffn, config.layers, false);
  add(config.vocab, config.dim, 1, true);
  return shapes;
}

double TotalFlops(const std::vector<GemmShape>& shapes) {
  double flops = 0;
  for (const GemmShape& shape : shapes) flops += shape.flops() * static_cast<double>(shape.count);
  return flops;
}

class GemmBaseline::Impl {
 public:
  Impl(std::vector<GemmShape> shapes, Clock* clock)
      : shapes_(std::move(shapes)),
        clock_(clock),
        engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_) {
    for (const GemmShape& shape : shapes_) {
      const bool bf16 = UsesBf16(shape);
      a_.Grow(shape.m * shape.k, bf16);
      b_.Grow(shape.k * shape.n, bf16);
      c_.Grow(shape.m * shape.n, bf16);
    }
  }

  const std::vector<GemmShape>& shapes() const { return shapes_; }

  std::vector<double> Run(int num_threads) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(num_threads);
    std::vector<double> seconds;
    for (const GemmShape& shape : shapes_) {
      seconds.push_back(UsesBf16(shape) ? TimeBf16(shape) : TimeSgemm(shape));
    }
    omp_set_num_threads(before);
    return seconds;
  }

 private:
  static bool UsesBf16(const GemmShape& shape) { return shape.bf16 && CpuHasBf16(); }

  double TimeSgemm(const GemmShape& s) {
    const double start = clock_->MonotonicSeconds();
    const dnnl_status_t status =
        dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1.0f,
                   a_.f32.data(), s.transpose_a ? s.m : s.k, b_.f32.data(),
                   s.transpose_b ? s.k : s.n, 0.0f, c_.f32.data(), s.n);
    const double seconds = clock_->MonotonicSeconds() - start;
    CRIA_CHECK_EQ(static_cast<int>(status), static_cast<int>(dnnl_success));
    return seconds;
  }

  double TimeBf16(const GemmShape& s) {
    constexpr auto kBf16 = memory::data_type::bf16;
    const auto out = s.bf16_out ? kBf16 : memory::data_type::f32;
    const dnnl::matmul::primitive_desc description(
        dnnl::matmul::desc(Matrix(s.m, s.k, s.transpose_a, kBf16),
                           Matrix(s.k, s.n, s.transpose_b, kBf16), Matrix(s.m, s.n, false, out)),
        engine_);
    const dnnl::matmul matmul(description);
    void* c = s.bf16_out ? static_cast<void*>(c_.bf16.data()) : c_.f32.data();
    const std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, memory(description.src_desc(), engine_, a_.bf16.data())},
        {DNNL_ARG_WEIGHTS, memory(description.weights_desc(), engine_, b_.bf16.data())},
        {DNNL_ARG_DST, memory(description.dst_desc(), engine_, c)}};
    const double start = clock_->MonotonicSeconds();
    matmul.execute(stream_, arguments);
    stream_.wait();
    return clock_->MonotonicSeconds() - start;
  }

  const std::vector<GemmShape> shapes_;
  Clock* const clock_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Buffer a_, b_, c_;
};

GemmBaseline::GemmBaseline(std::vector<GemmShape> shapes, Clock* clock)
    : impl_(std::make_unique<Impl>(std::move(shapes), clock)) {}
GemmBaseline::~GemmBaseline() = default;

const std::vector<GemmShape>& GemmBaseline::shapes() const { return impl_->shapes(); }

std::vector<double> GemmBaseline::Run(int num_threads) { return impl_->Run(num_threads); }

double GemmBaseline::RunStep(int num_threads) {
  const std::vector<double> seconds = impl_->Run(num_threads);
  double total = 0;
  for (size_t i = 0; i < seconds.size(); ++i) {
    total += seconds[i] * static_cast<double>(shapes()[i].count);
  }
  return total;
}

}  // namespace cria::trainer
