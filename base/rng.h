// Random numbers that are a pure function of (seed, stream, index): Philox4x32-10.
//
//   const Rng rng(job.seed, StreamOf("layers.3.attention.wq"));
//   for (int64_t i = 0; i < n; ++i) w[i] = stddev * rng.Normal(i);   // in any order, on any rank
//
// There is no state, so threads, ranks and a resumed run see the same values. A stream is a
// purpose (a parameter's name, "data shuffle"); an index is a position in it. Everything that is
// saved or compared draws from here, never from <random>.
// Thread-safe. Cost: about 10 ns a number.
// Same values on any machine: only +, -, *, / and sqrt, which IEEE 754 rounds exactly.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11; Wichura, algorithm
// AS 241 (1988) for the normal distribution.

#ifndef CRIA_BASE_RNG_H_
#define CRIA_BASE_RNG_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace cria {

// The block function itself: 128 bits of counter, 64 bits of key.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A stream's number from its name.
uint64_t StreamOf(std::string_view name);

class Rng {
 public:
  Rng(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  // 64 random bits.
  uint64_t U64(uint64_t index) const;

  // Uniform in [0, 1), a multiple of 2^-53.
  double Uniform(uint64_t index) const;

  // Standard normal, by the inverse of its distribution; |x| < 8.3.
  float Normal(uint64_t index) const;

  // Uniform in [0, n), n > 0. The chance of a value is off by at most 2^-64.
  uint64_t Below(uint64_t index, uint64_t n) const;

  uint64_t seed() const { return seed_; }
  uint64_t stream() const { return stream_; }

 private:
  uint64_t seed_;
  uint64_t stream_;
};

// A random order of 0 .. n-1 without a table: At is a bijection on [0, n).
// A Feistel network over the next even power of two; values outside [0, n) are sent through it
// again (cycle walking), fewer than 4 times on average. A place in an order of
// 10^12 documents costs what one in an order of ten does: about 50 ns, no memory.
// Source: Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.
class KeyedPermutation {
 public:
  KeyedPermutation(uint64_t seed, uint64_t stream, uint64_t n);

  // The i-th element of the order, i < size().
  uint64_t At(uint64_t i) const;
  uint64_t size() const { return n_; }

 private:
  static constexpr int kNumRounds = 8;

  uint64_t n_;
  int half_bits_;
  std::array<uint64_t, kNumRounds> round_keys_;
};

}  // namespace cria

#endif  // CRIA_BASE_RNG_H_
