// Vectors of floats in the widest register of the instruction set being compiled for, on GCC's
// vector extensions: the kernels are written once and compiled for each set (tools/cria.bzl,
// cria_isa_library). For .cc files of such libraries only; everything is in namespace CRIA_ISA.

#ifndef CRIA_MODEL_CPU_VEC_H_
#define CRIA_MODEL_CPU_VEC_H_

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
  return (Vec)(__builtin_convertvector(h, VecU) << 16);
}

// fp32 to bf16: to nearest, ties to even; NaN stays NaN.
inline void Store(BF16* p, Vec v) {
  const VecU bits = (VecU)v;
  const VecU rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const VecU nan = (bits >> 16) | 0x40u;
  const VecI is_number = (VecI)(v == v);
  const VecU out = (VecU)(((VecI)rounded & is_number) | ((VecI)nan & ~is_number));
  const VecH h = __builtin_convertvector(out, VecH);
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

inline Vec Max(Vec a, Vec b) { return a > b ? a : b; }
inline Vec Min(Vec a, Vec b) { return a < b ? a : b; }

// Sum and maximum over the lanes, in a fixed order (halves added to halves).
inline float SumLanes(Vec v) {
  float x[kLanes];
  Store(x, v);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x[i] += x[i + width];
  }
  return x[0];
}
inline float MaxLanes(Vec v) {
  float max = v[0];
  for (int i = 1; i < kLanes; ++i) max = v[i] > max ? v[i] : max;
  return max;
}

// e^x with a relative error under 2e-7: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r,
// n into the exponent. Below -87.3 the result is 0, above 88.7 infinity; NaN stays NaN.
inline Vec Exp(Vec x) {
  const Vec kLog2E = Set(1.44269504088896341f);
  const Vec kMagic = Set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec clamped = Max(Min(x, Set(89.0f)), Set(-88.0f));
  const Vec n = (clamped * kLog2E + kMagic) - kMagic;
  Vec r = clamped - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  Vec p = Set(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // 2^n in two factors, so that n = 128 and n = -127 need no special case.
  const VecI half = __builtin_convertvector(n, VecI) >> 1;
  const VecI rest = __builtin_convertvector(n, VecI) - half;
  const Vec scaled = p * (Vec)((half + 127) << 23) * (Vec)((rest + 127) << 23);
  const Vec positive = x < Set(-87.3f) ? Set(0.0f) : scaled;
  return x == x ? positive : x;
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
