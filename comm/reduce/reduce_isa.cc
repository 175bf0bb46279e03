// The loops behind reduce.h, compiled once per instruction set with CRIA_ISA its name, and with
// -ffp-contract=off: a fused multiply-add would round otherwise than the copies without it.
//
// A chunk of elements stays in registers while the sources pass by; its sum is finished and stored
// once. Every element goes through the same operations in the same order whether it lies in a full
// chunk or in the tail (one lane), so the result does not depend on where it lies.

#include <immintrin.h>

#include <cstdint>

#include "comm/reduce/reduce_kernels.h"

namespace cria::comm::reduce_internal::CRIA_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

#define CRIA_INLINE [[gnu::always_inline]] inline

template <typename T, int kLanes>
struct VecOf {
  typedef T type __attribute__((vector_size(sizeof(T) * kLanes)));
};
template <typename T, int kLanes>
using Vec = typename VecOf<T, kLanes>::type;

template <typename V>
CRIA_INLINE V LoadUnaligned(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof(V));
  return v;
}
template <typename V>
CRIA_INLINE void StoreUnaligned(void* to, const V& v) {
  __builtin_memcpy(to, &v, sizeof(V));
}

// A NaN has one pattern in a result: which operand's payload survives depends on the compiler.
template <int L>
CRIA_INLINE Vec<float, L> CanonicalNan(Vec<float, L> x) {
  const Vec<uint32_t, L> bits = (Vec<uint32_t, L>)x;
  const Vec<uint32_t, L> nan = bits - bits + 0x7FC00000u;
  return (Vec<float, L>)(x == x ? bits : nan);
}

// How elements of a type are read and written: lanes of the type that is added up in.
struct Float32 {
  using Raw = float;
  using Acc = float;
  static constexpr bool kFloat = true;
  template <int L>
  CRIA_INLINE static Vec<float, L> Load(const void* p) {
    return LoadUnaligned<Vec<float, L>>(p);
  }
  template <int L>
  CRIA_INLINE static void Store(void* p, Vec<float, L> x) {
    StoreUnaligned(p, x);
  }
};

struct Bfloat16 {
  using Raw = uint16_t;
  using Acc = float;
  static constexpr bool kFloat = true;
  template <int L>
  CRIA_INLINE static Vec<float, L> Load(const void* p) {
    const auto wide =
        __builtin_convertvector((LoadUnaligned<Vec<uint16_t, L>>(p)), Vec<uint32_t, L>);
    return (Vec<float, L>)(wide << 16);
  }
  // Round to nearest, ties to even. x is no NaN but the canonical one, whose low half is zero.
  template <int L>
  CRIA_INLINE static void Store(void* p, Vec<float, L> x) {
    const Vec<uint32_t, L> bits = (Vec<uint32_t, L>)x;
    const Vec<uint32_t, L> rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    StoreUnaligned(p, __builtin_convertvector(rounded, Vec<uint16_t, L>));
  }
};

struct Float16 {
  using Raw = uint16_t;
  using Acc = float;
  static constexpr bool kFloat = true;
  template <int L>
  CRIA_INLINE static Vec<float, L> Load(const void* p) {
#if defined(__AVX512F__)
    if constexpr (L == 16) {
      return (Vec<float, L>)_mm512_maskz_cvtph_ps(
          0xFFFF, _mm256_loadu_si256(static_cast<const __m256i*>(p)));
    }
#endif
#if defined(__F16C__)
    if constexpr (L == 8) {
      return (Vec<float, L>)_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    }
#endif
    // The exponent and mantissa, moved up, are the value times 2^-112, exact also for subnormals;
    // infinities and NaN then lack the upper bits of the exponent.
    const auto half =
        __builtin_convertvector((LoadUnaligned<Vec<uint16_t, L>>(p)), Vec<uint32_t, L>);
    const Vec<uint32_t, L> magnitude = (half & 0x7FFFu) << 13;
    const Vec<float, L> scaled = (Vec<float, L>)magnitude * 0x1p112f;
    const Vec<uint32_t, L> finite = (Vec<uint32_t, L>)scaled;
    const Vec<int32_t, L> special = (Vec<int32_t, L>)magnitude >= 0x0F800000;
    const Vec<uint32_t, L> bits = special ? (finite | 0x7F800000u) : finite;
    return (Vec<float, L>)(bits | ((half & 0x8000u) << 16));
  }
  template <int L>
  CRIA_INLINE static void Store(void* p, Vec<float, L> x) {
#if defined(__AVX512F__)
    if constexpr (L == 16) {
      _mm256_storeu_si256(static_cast<__m256i*>(p),
                          _mm512_maskz_cvtps_ph(0xFFFF, (__m512)x, _MM_FROUND_TO_NEAREST_INT));
      return;
    }
#endif
#if defined(__F16C__)
    if constexpr (L == 8) {
      _mm_storeu_si128(static_cast<__m128i*>(p),
                       _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT));
      return;
    }
#endif
    const Vec<uint32_t, L> bits = (Vec<uint32_t, L>)x;
    const Vec<uint32_t, L> sign = (bits & 0x80000000u) >> 16;
    const Vec<uint32_t, L> magnitude = bits & 0x7FFFFFFFu;
    const Vec<int32_t, L> order = (Vec<int32_t, L>)magnitude;
    // Normal halves: round the lower 13 bits, then move the exponent's bias from 127 to 15.
    const Vec<uint32_t, L> normal =
        (magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    // Subnormal halves: adding 0.5 leaves the value in units of 2^-24 in the low bits, rounded.
    const Vec<uint32_t, L> subnormal =
        (Vec<uint32_t, L>)((Vec<float, L>)magnitude + 0.5f) - 0x3F000000u;
    const Vec<uint32_t, L> infinity = bits - bits + 0x7C00u;
    const Vec<uint32_t, L> nan = bits - bits + 0x7E00u;
    Vec<uint32_t, L> half = order < 0x38800000 ? subnormal : normal;
    half = order >= 0x477FF000 ? infinity : half;  // 65520 and above round to infinity
    half = order > 0x7F800000 ? nan : half;
    StoreUnaligned(p, __builtin_convertvector(half | sign, Vec<uint16_t, L>));
  }
};

template <typename T, typename U>
struct Integer {
  using Raw = T;
  using Acc = T;
  using Unsigned = U;  // wraps around where T may not
  static constexpr bool kFloat = false;
  template <int L>
  CRIA_INLINE static Vec<T, L> Load(const void* p) {
    return LoadUnaligned<Vec<T, L>>(p);
  }
  template <int L>
  CRIA_INLINE static void Store(void* p, Vec<T, L> x) {
    StoreUnaligned(p, x);
  }
};
using Int8 = Integer<int8_t, uint8_t>;
using Uint8 = Integer<uint8_t, uint8_t>;
using Int16 = Integer<int16_t, uint16_t>;
using Int32 = Integer<int32_t, uint32_t>;
using Int64 = Integer<int64_t, uint64_t>;

struct Sum {
  template <typename Num, int L, typename V>
  CRIA_INLINE static V Apply(const V& a, const V& b) {
    if constexpr (Num::kFloat) {
      return a + b;
    } else {
      using W = Vec<typename Num::Unsigned, L>;
      return (V)((W)a + (W)b);
    }
  }
};
struct Avg : Sum {};  // of float types
struct Prod {
  template <typename Num, int L, typename V>
  CRIA_INLINE static V Apply(const V& a, const V& b) {
    if constexpr (Num::kFloat) {
      return a * b;
    } else {
      using W = Vec<typename Num::Unsigned, L>;
      return (V)((W)a * (W)b);
    }
  }
};
// Of equal values only zeros differ in their bits: the sign of min is either's, of max both's.
struct Min {
  template <typename Num, int L, typename V>
  CRIA_INLINE static V Apply(const V& a, const V& b) {
    if constexpr (Num::kFloat) {
      using W = Vec<uint32_t, L>;
      const W smaller = a < b ? (W)a : (W)b;
      const W ordered = a == b ? ((W)a | (W)b) : smaller;
      return (V)(a == a ? ordered : (W)a);
    } else {
      return a < b ? a : b;
    }
  }
};
struct Max {
  template <typename Num, int L, typename V>
  CRIA_INLINE static V Apply(const V& a, const V& b) {
    if constexpr (Num::kFloat) {
      using W = Vec<uint32_t, L>;
      const W larger = a > b ? (W)a : (W)b;
      const W ordered = a == b ? ((W)a & (W)b) : larger;
      return (V)(a == a ? ordered : (W)a);
    } else {
      return a > b ? a : b;
    }
  }
};

template <typename A, typename B>
constexpr bool kSame = false;
template <typename A>
constexpr bool kSame<A, A> = true;

// kUnroll vectors of L lanes from element i of the pass on.
template <typename Num, typename Op, int L, int kUnroll>
CRIA_INLINE void LoadChunk(const KernelCall& call, const ReduceSource& source, int64_t i,
                           Vec<typename Num::Acc, L>* x) {
  using Raw = typename Num::Raw;
  using Acc = typename Num::Acc;
  constexpr bool kScaled = kSame<Op, Avg>;
  constexpr bool kTwoForms = kScaled || !kSame<Raw, Acc>;
  if (kTwoForms && source.partial) {
    const Acc* from = static_cast<const Acc*>(source.data) + (call.first + i);
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) x[u] = LoadUnaligned<Vec<Acc, L>>(from + u * L);
    return;
  }
  const Raw* from = static_cast<const Raw*>(source.data) + (call.first + i);
#pragma GCC unroll 4
  for (int u = 0; u < kUnroll; ++u) {
    x[u] = Num::template Load<L>(from + u * L);
    if constexpr (kScaled) x[u] = x[u] * call.scale;
  }
}

template <typename Num, typename Op, int L, int kUnroll>
CRIA_INLINE void Chunk(const KernelCall& call, int64_t i) {
  using Raw = typename Num::Raw;
  using Acc = typename Num::Acc;
  using V = Vec<Acc, L>;
  V acc[kUnroll];
  LoadChunk<Num, Op, L, kUnroll>(call, call.sources[0], i, acc);
  for (int64_t s = 1; s < call.num_sources; ++s) {
    V x[kUnroll];
    LoadChunk<Num, Op, L, kUnroll>(call, call.sources[s], i, x);
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) acc[u] = Op::template Apply<Num, L>(acc[u], x[u]);
  }
  if constexpr (Num::kFloat) {
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) acc[u] = CanonicalNan<L>(acc[u]);
  }
  if (call.out_partial) {
    Acc* to = static_cast<Acc*>(call.out) + i;
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) StoreUnaligned(to + u * L, acc[u]);
    return;
  }
  Raw* to = static_cast<Raw*>(call.out) + i;
#pragma GCC unroll 4
  for (int u = 0; u < kUnroll; ++u) {
    if constexpr (kSame<Op, Avg>) acc[u] = acc[u] / call.divisor;
    Num::template Store<L>(to + u * L, acc[u]);
  }
}

template <typename Num, typename Op>
void Reduce(const KernelCall& call) {
  constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(typename Num::Acc));
  int64_t i = 0;
  for (; i + 4 * kLanes <= call.count; i += 4 * kLanes) Chunk<Num, Op, kLanes, 4>(call, i);
  for (; i + kLanes <= call.count; i += kLanes) Chunk<Num, Op, kLanes, 1>(call, i);
  for (; i < call.count; ++i) Chunk<Num, Op, 1, 1>(call, i);
}

// The average of integers: a sum that cannot wrap around, then a division toward zero. A partial
// result is the sum as the type holds it.
template <typename Num>
void ReduceIntegerAvg(const KernelCall& call) {
  using T = typename Num::Raw;
  // In int64, 2^32 ranks of int32 fit; int64 itself needs twice the bits.
  using Wide = __int128;
  constexpr bool kWide = sizeof(T) == 8;
  for (int64_t i = 0; i < call.count; ++i) {
    Wide wide = 0;
    int64_t total = 0;
    for (int64_t s = 0; s < call.num_sources; ++s) {
      T x;
      __builtin_memcpy(&x, static_cast<const T*>(call.sources[s].data) + (call.first + i),
                       sizeof(T));
      if constexpr (kWide) {
        wide += x;
      } else {
        total += x;
      }
    }
    T result;
    if constexpr (kWide) {
      result = static_cast<T>(call.out_partial ? wide : wide / call.group_size);
    } else {
      result = static_cast<T>(call.out_partial ? total : total / call.group_size);
    }
    __builtin_memcpy(static_cast<T*>(call.out) + i, &result, sizeof(T));
  }
}

CRIA_INLINE void StreamLine(const char* from, char* to) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX2__)
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + 32));
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), a);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to + 32), b);
#else
  const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16));
  const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 32));
  const __m128i d = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 48));
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), a);
  _mm_stream_si128(reinterpret_cast<__m128i*>(to + 16), b);
  _mm_stream_si128(reinterpret_cast<__m128i*>(to + 32), c);
  _mm_stream_si128(reinterpret_cast<__m128i*>(to + 48), d);
#endif
}

// Up to the first line boundary of the target and after the last, ordinary stores.
void Stream(const void* source, void* target, int64_t bytes) {
  const char* from = static_cast<const char*>(source);
  char* to = static_cast<char*>(target);
  int64_t head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) & 63u);
  if (head > bytes) head = bytes;
  __builtin_memcpy(to, from, static_cast<uint64_t>(head));
  int64_t i = head;
  for (; i + 64 <= bytes; i += 64) StreamLine(from + i, to + i);
  __builtin_memcpy(to + i, from + i, static_cast<uint64_t>(bytes - i));
}

#define CRIA_FLOAT_ROW(Num) \
  { Reduce<Num, Sum>, Reduce<Num, Avg>, Reduce<Num, Min>, Reduce<Num, Max>, Reduce<Num, Prod> }
#define CRIA_INTEGER_ROW(Num) \
  { Reduce<Num, Sum>, ReduceIntegerAvg<Num>, Reduce<Num, Min>, Reduce<Num, Max>, Reduce<Num, Prod> }

}  // namespace

const Kernels kKernels = {
    .reduce = {CRIA_FLOAT_ROW(Float32),
               CRIA_FLOAT_ROW(Bfloat16),
               CRIA_FLOAT_ROW(Float16),
               {},
               {},
               CRIA_INTEGER_ROW(Int8),
               CRIA_INTEGER_ROW(Uint8),
               CRIA_INTEGER_ROW(Int16),
               CRIA_INTEGER_ROW(Int32),
               CRIA_INTEGER_ROW(Int64)},
    .stream = Stream,
};

}  // namespace cria::comm::reduce_internal::CRIA_ISA
