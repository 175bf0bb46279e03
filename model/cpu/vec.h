// Vectors of floats in the widest register of the instruction set being compiled for, on GCC's
// vector extensions: the kernels are written once and compiled for each set (tools/cria.bzl,
// cria_isa_library). For .cc files of such libraries only; everything is in namespace CRIA_ISA.

#ifndef CRIA_MODEL_CPU_VEC_H_
#define CRIA_MODEL_CPU_VEC_H_

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "model/tensor.h"

#ifndef CRIA_ISA
#define CRIA_ISA generic  // so that the header compiles alone
#endif

namespace cria::model::cpu::CRIA_ISA {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef int32_t VecI __attribute__((vector_size(kLanes * 4)));
typedef uint32_t VecU __attribute__((vector_size(kLanes * 4)));
typedef uint16_t VecH __attribute__((vector_size(kLanes * 2)));

inline Vec Set(float x) { return Vec{} + x; }

inline Vec Load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

inline void Store(float* p, Vec v) { std::memcpy(p, &v, sizeof(v)); }

// bf16 to fp32 is exact: the bits move up.
inline Vec Load(const BF16* p) {
  VecH h;
  std::memcpy(&h, p, sizeof(h));
#if defined(__AVX2__) && !defined(__AVX512F__)
  return (Vec)((VecU)_mm256_cvtepu16_epi32((__m128i)h) << 16);  // GCC takes six instructions
#else
  return (Vec)(__builtin_convertvector(h, VecU) << 16);
#endif
}

// fp32 to bf16: to nearest, ties to even; NaN stays NaN.
inline void Store(BF16* p, Vec v) {
  const VecU bits = (VecU)v;
  const VecU rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const VecU nan = (bits >> 16) | 0x40u;
  const VecI is_number = (VecI)(v == v);
  const VecU out = (VecU)(((VecI)rounded & is_number) | ((VecI)nan & ~is_number));
#if defined(__AVX2__) && !defined(__AVX512F__)
  const __m256i bits256 = (__m256i)out;  // no half is over 0xffff: packing saturates nothing
  const VecH h =
      (VecH)_mm_packus_epi32(_mm256_castsi256_si128(bits256), _mm256_extracti128_si256(bits256, 1));
#else
  const VecH h = __builtin_convertvector(out, VecH);
#endif
  std::memcpy(p, &h, sizeof(h));
}

inline float LoadOne(const float* p) { return *p; }
inline float LoadOne(const BF16* p) {
  const uint32_t bits = static_cast<uint32_t>(p->bits) << 16;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
inline void StoreOne(float* p, float x) { *p = x; }
inline void StoreOne(BF16* p, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  p->bits = static_cast<uint16_t>(x == x ? (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16
                                         : (bits >> 16) | 0x40u);
}

// The first n lanes, the others zero; n < kLanes.
template <typename T>
inline Vec LoadPartial(const T* p, int64_t n) {
  Vec v{};
  for (int64_t i = 0; i < n; ++i) v[i] = LoadOne(p + i);
  return v;
}
template <typename T>
inline void StorePartial(T* p, Vec v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) StoreOne(p + i, v[i]);
}

#if defined(__AVX512F__)
// The same by masks: one instruction where the loops above take one for each lane.
inline __mmask16 FirstLanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
inline Vec LoadPartial(const float* p, int64_t n) {
  return (Vec)_mm512_maskz_loadu_ps(FirstLanes(n), p);
}
inline Vec LoadPartial(const BF16* p, int64_t n) {
  const VecH h = (VecH)_mm256_maskz_loadu_epi16(FirstLanes(n), p);
  return (Vec)(__builtin_convertvector(h, VecU) << 16);
}
inline void StorePartial(float* p, Vec v, int64_t n) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), (__m512)v);
}
#endif

// a > b ? a : b, so b where one is NaN: one instruction, which GCC does not see by itself.
inline Vec Max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return (Vec)_mm512_maskz_max_ps(0xffff, (__m512)a, (__m512)b);
#elif defined(__AVX__)
  return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return (Vec)_mm_max_ps((__m128)a, (__m128)b);
#endif
}

// The lanes combined: the upper half with the lower, until one is left.
template <typename Combine>
inline float ReduceLanes(Vec v, Combine&& combine) {
#if defined(__AVX512F__)
  const auto v8 = combine(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7),
                          __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
#else
  const auto v8 = v;
#endif
#if defined(__AVX__)
  const auto v4 = combine(__builtin_shufflevector(v8, v8, 0, 1, 2, 3),
                          __builtin_shufflevector(v8, v8, 4, 5, 6, 7));
#else
  const auto v4 = v8;
#endif
  const auto v2 = combine(v4, __builtin_shufflevector(v4, v4, 2, 3, 2, 3));
  return combine(v2, __builtin_shufflevector(v2, v2, 1, 1, 1, 1))[0];
}

inline float SumLanes(Vec v) {
  return ReduceLanes(v, [](auto a, auto b) { return a + b; });
}
inline float MaxLanes(Vec v) {
  return ReduceLanes(v, [](auto a, auto b) { return a > b ? a : b; });
}

// e^x with a relative error under 2e-7: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r,
// n added to the exponent. Below -87.3 the result is 0, above 88.7 infinity; NaN stays NaN.
inline Vec Exp(Vec x) {
  const Vec kLog2E = Set(1.44269504088896341f);
  // 1.5 * 2^23: adding it rounds to an integer, which the sum's lowest bits then hold.
  const Vec kMagic = Set(12582912.0f);
  const Vec shifted = x * kLog2E + kMagic;
  const Vec n = shifted - kMagic;
  Vec r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Vec p = Set(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Vec scaled = (Vec)((VecU)p + ((VecU)shifted << 23));
  // Outside the range the bits above mean nothing, nor do they for NaN.
  const Vec positive = x < Set(-87.3f) ? Set(0.0f) : scaled;
  return x <= Set(88.72283f) ? positive : x * Set(__builtin_inff());
}

inline Vec Sigmoid(Vec x) { return Set(1.0f) / (Set(1.0f) + Exp(-x)); }

// Runs body(column) for whole vectors and tail(column, lanes) for the rest of [0, n).
template <typename Body, typename Tail>
inline void ForVectors(int64_t n, Body&& body, Tail&& tail) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i);
  if (i < n) tail(i, n - i);
}

}  // namespace cria::model::cpu::CRIA_ISA

#endif  // CRIA_MODEL_CPU_VEC_H_
