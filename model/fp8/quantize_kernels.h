// The inner loops of quantize.h, compiled once per instruction set. Internal to model/fp8 and its
// tests, which compare all instruction sets of a machine.
//
// A kernel works on a rectangle, on the calling thread. Thread-safe.

#ifndef CRIA_MODEL_FP8_QUANTIZE_KERNELS_H_
#define CRIA_MODEL_FP8_QUANTIZE_KERNELS_H_

#include <cstdint>

#include "base/cpu.h"
#include "model/fp8/quantize.h"

namespace cria::model::fp8_internal {

// The numbers of a format, as rounding needs them.
struct Grid {
  float max;
  float max_power;  // the power of two at or below max
  float min_normal;
  float step_up;  // 2^(23 - mantissa bits): a power of two times it has ulp = the step there
  float per_min_subnormal;  // 1 / min subnormal
  int mantissa_bits;
  int bias;
};
const Grid& GridOf(Fp8Format format);

// A rectangle of input: rows of `cols` elements, `stride` elements apart.
struct Source {
  const void* data;
  int64_t stride;
  int64_t rows;
  int64_t cols;
};

// Raises *amax_bits, the bit pattern of a float that is not negative, to the largest magnitude.
// Patterns order as magnitudes do, with NaN above infinity.
using AmaxFn = void (*)(const Source& in, uint32_t* amax_bits);
// The same for each column: amax_bits[c].
using ColumnAmaxFn = AmaxFn;
// out[r, c] = round(in[r, c] * scale) * fold. scale and fold: one number, or one for each column.
// out: float, bf16, or the 8-bit code (which fold doesn't touch).
using RoundFn = void (*)(const Source& in, const float* scale, const float* fold, const Grid& grid,
                         void* out, int64_t out_stride);

enum Target : uint8_t { kToF32, kToBF16, kToCode };

struct Kernels {
  AmaxFn amax[2];               // by ElementType of the input
  ColumnAmaxFn column_amax[2];  // by ElementType of the input
  RoundFn round[2][3];          // by ElementType of the input, Target
  RoundFn round_columns[2][3];  // one scale and fold for each column
};

// The kernels for `isa`, which the CPU must have.
const Kernels& KernelsFor(Isa isa);

// Quantize() by given kernels.
QuantizeResult QuantizeWith(const Kernels& kernels, const QuantizeSpec& spec,
                            const QuantizeInput& in, const QuantizeOutput& out,
                            const QuantizeOptions& options);

}  // namespace cria::model::fp8_internal

// quantize_isa.cc defines one in each namespace.
namespace cria::model::fp8_internal::generic {
extern const Kernels kKernels;
}
namespace cria::model::fp8_internal::avx2 {
extern const Kernels kKernels;
}
namespace cria::model::fp8_internal::avx512 {
extern const Kernels kKernels;
}

#endif  // CRIA_MODEL_FP8_QUANTIZE_KERNELS_H_
