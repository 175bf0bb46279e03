// Q8_0: ggml's 8-bit quantisation. 32 numbers share one scale.
//
//   std::vector<char> bytes(Q8RowBytes(columns));
//   CRIA_RETURN_IF_ERROR(QuantizeQ8(row, columns, bytes.data()));   // columns: a multiple of 32
//   DequantizeQ8(bytes.data(), columns, row);
//
//   block of 34 bytes:  | scale, fp16 | 32 x int8 |      value = scale * int8
//
// As ggml's reference computes it: d = max |x| / 127 in fp32, each number x * (1 / d) rounded half
// away from zero; what is stored is d rounded to fp16, which the numbers were not divided by.
//
// Quantising what was dequantised gives the same bytes: the block's largest number is +-127, so
// max |x| / 127 is the stored scale again, exactly. Two exceptions:
//   - the scale rounded to 0 (all |x| < 3.8e-6): the numbers are lost and zeros come back,
//   - another writer's block, whose largest number is not +-127.
// Thread-safe. Cost: one pass. Source: ggml's quantize_row_q8_0_ref, by its arithmetic.

#ifndef CRIA_MODEL_IO_Q8_0_H_
#define CRIA_MODEL_IO_Q8_0_H_

#include <cstdint>

#include "base/status.h"

namespace cria::model {

inline constexpr int64_t kQ8BlockElements = 32;
inline constexpr int64_t kQ8BlockBytes = 34;

// n is a multiple of 32 here and below: CHECKed.
int64_t Q8RowBytes(int64_t n);

// InvalidArgument, with the place and the value, for a NaN, an infinity, or numbers so large that
// their scale is over fp16's 65504 (|x| about 8.3 million).
Status QuantizeQ8(const float* from, int64_t n, void* to);

void DequantizeQ8(const void* from, int64_t n, float* to);

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_Q8_0_H_
