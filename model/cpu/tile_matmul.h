// C[M,N] (+)= A[M,K] B[K,N] for the small tiles inside attention, held in L1 and L2. fp32.
//
// A may be read with any strides (so A transposed costs nothing: it is only broadcast); B and C
// have contiguous rows whose N is a multiple of kLanes. A block of kTileRows x 2 vectors of C stays
// in registers while K runs. For .cc files of cria_isa_library only.

#ifndef CRIA_MODEL_CPU_TILE_MATMUL_H_
#define CRIA_MODEL_CPU_TILE_MATMUL_H_

#include <cstdint>

#include "model/cpu/vec.h"

namespace cria::model::cpu::CRIA_ISA {

struct TileMatmulArgs {
  const float* a;
  int64_t a_row_stride;
  int64_t a_column_stride;
  const float* b;
  const BF16* b_low = nullptr;  // b in bf16, where b is null
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  int64_t m, n, k;
  bool accumulate;
};

namespace tile_internal {

template <int kRows, int kVectors, typename B>
[[gnu::always_inline]] inline void Block(const TileMatmulArgs& args, const B* b_all, int64_t row,
                                         int64_t column) {
  const float* a = args.a + row * args.a_row_stride;
  const B* b = b_all + column;
  float* c = args.c + row * args.c_stride + column;
  Vec sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j] = args.accumulate ? Load(c + i * args.c_stride + j * kLanes) : Vec{};
    }
  }
  for (int64_t k = 0; k < args.k; ++k) {
    Vec b_k[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) b_k[j] = Load(b + k * args.b_stride + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const float a_ik = a[i * args.a_row_stride + k * args.a_column_stride];
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sums[i][j] += a_ik * b_k[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) Store(c + i * args.c_stride + j * kLanes, sums[i][j]);
  }
}

template <int kVectors, typename B>
inline void Columns(const TileMatmulArgs& args, const B* b, int64_t column) {
  constexpr int kTileRows = 6;  // 12 sums, 2 vectors of B and a broadcast fit 16 registers
  int64_t row = 0;
  for (; row + kTileRows <= args.m; row += kTileRows) {
    Block<kTileRows, kVectors>(args, b, row, column);
  }
  for (; row + 4 <= args.m; row += 4) Block<4, kVectors>(args, b, row, column);
  for (; row + 2 <= args.m; row += 2) Block<2, kVectors>(args, b, row, column);
  for (; row < args.m; ++row) Block<1, kVectors>(args, b, row, column);
}

template <typename B>
inline void AllColumns(const TileMatmulArgs& args, const B* b) {
  int64_t column = 0;
  // One row has too few sums in two vectors to hide an addition's latency.
  if (args.m == 1) {
    constexpr int kMany = 8;
    for (; column + kMany * kLanes <= args.n; column += kMany * kLanes) {
      Block<1, kMany>(args, b, 0, column);
    }
  }
  for (; column + 2 * kLanes <= args.n; column += 2 * kLanes) Columns<2>(args, b, column);
  for (; column < args.n; column += kLanes) Columns<1>(args, b, column);
}

}  // namespace tile_internal

inline void TileMatmul(const TileMatmulArgs& args) {
  if (args.b != nullptr) {
    tile_internal::AllColumns(args, args.b);
  } else {
    tile_internal::AllColumns(args, args.b_low);
  }
}

}  // namespace cria::model::cpu::CRIA_ISA

#endif  // CRIA_MODEL_CPU_TILE_MATMUL_H_
