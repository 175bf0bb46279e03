// Elements a second of each scale unit and type, on one thread unless CRIA_THREADS says otherwise:
//   CRIA_THREADS=1 bazel run //model/fp8:quantize_bench

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "model/fp8/quantize.h"

namespace cria::model {
namespace {

constexpr int64_t kRows = 2048;
constexpr int64_t kCols = 768;

// Gradual magnitudes of both signs, as activations have.
std::vector<float> SomeMatrix() {
  std::vector<float> x(kRows * kCols);
  uint32_t state = 1;
  for (float& value : x) {
    state = state * 1664525u + 1013904223u;
    const float a = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    value = a * a * a;
  }
  return x;
}

void BM_Quantize(benchmark::State& state, ScaleUnit unit, float fixed_scale, ElementType in_type,
                 ElementType out_type) {
  const std::vector<float> x = SomeMatrix();
  std::vector<uint16_t> x_bf16(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x_bf16[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x[i]) >> 16);
  }
  std::vector<float> out(x.size());
  const void* data = in_type == ElementType::kF32 ? static_cast<const void*>(x.data())
                                                  : static_cast<const void*>(x_bf16.data());
  const QuantizeSpec spec = {Fp8Format::kE4M3, unit, unit != ScaleUnit::kTensor};
  for (auto _ : state) {
    const QuantizeResult result =
        Quantize(spec, {data, in_type, kRows, kCols, kCols}, {out.data(), out_type, kCols},
                 {.fixed_scale = fixed_scale});
    benchmark::DoNotOptimize(result.amax);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kRows * kCols);
  const int64_t bytes =
      (in_type == ElementType::kF32 ? 4 : 2) + (out_type == ElementType::kF32 ? 4 : 2);
  state.SetBytesProcessed(state.iterations() * kRows * kCols * bytes);
}

#define CRIA_BENCH_UNIT(name, unit, scale)                                                        \
  BENCHMARK_CAPTURE(BM_Quantize, name##_f32_to_bf16, ScaleUnit::unit, scale, ElementType::kF32,   \
                    ElementType::kBF16);                                                          \
  BENCHMARK_CAPTURE(BM_Quantize, name##_f32_to_f32, ScaleUnit::unit, scale, ElementType::kF32,    \
                    ElementType::kF32);                                                           \
  BENCHMARK_CAPTURE(BM_Quantize, name##_bf16_to_bf16, ScaleUnit::unit, scale, ElementType::kBF16, \
                    ElementType::kBF16)
CRIA_BENCH_UNIT(tensor, kTensor, 0);
CRIA_BENCH_UNIT(delayed, kTensor, 100.0f);
CRIA_BENCH_UNIT(row, kPerRow, 0);
CRIA_BENCH_UNIT(column, kPerColumn, 0);
CRIA_BENCH_UNIT(row_1x128, kRow1x128, 0);
CRIA_BENCH_UNIT(col_128x1, kCol128x1, 0);
CRIA_BENCH_UNIT(block_128x128, kBlock128x128, 0);
#undef CRIA_BENCH_UNIT

}  // namespace
}  // namespace cria::model

BENCHMARK_MAIN();
