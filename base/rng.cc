#include "base/rng.h"

#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/hash.h"

namespace cria {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kPhiloxRounds = 10;

// The natural logarithm of x, 0 < x < 1, to about 1 ulp. The C library's differs between CPUs
// (it takes another path where FMA exists); this one is made of exactly rounded operations.
//   x = m 2^e, m in [sqrt(1/2), sqrt(2));  log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172
double Log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double series = 0;
  for (int k = 23; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return exponent * 0.69314718055994531 + 2 * s * series;
}

template <size_t N>
double Polynomial(const double (&coefficients)[N], double x) {
  double value = 0;
  for (size_t i = N; i-- > 0;) value = value * x + coefficients[i];
  return value;
}

// AS 241, PPND16: three rational functions, relative error about 1e-16.
constexpr double kCentreA[] = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                               1.9715909503065514427e+3, 1.3731693765509461125e+4,
                               4.5921953931549871457e+4, 6.7265770927008700853e+4,
                               3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr double kCentreB[] = {1.0,
                               4.2313330701600911252e+1,
                               6.8718700749205790830e+2,
                               5.3941960214247511077e+3,
                               2.1213794301586595867e+4,
                               3.9307895800092710610e+4,
                               2.8729085735721942674e+4,
                               5.2264952788528545610e+3};
constexpr double kMiddleC[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                               5.76949722146069140550e0,  3.64784832476320460504e0,
                               1.27045825245236838258e0,  2.41780725177450611770e-1,
                               2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kMiddleD[] = {1.0,
                               2.05319162663775882187e0,
                               1.67638483018380384940e0,
                               6.89767334985100004550e-1,
                               1.48103976427480074590e-1,
                               1.51986665636164571966e-2,
                               5.47593808499534494600e-4,
                               1.05075007164441684324e-9};
constexpr double kTailE[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                             1.78482653991729133580e0,  2.96560571828504891230e-1,
                             2.65321895265761230930e-2, 1.24266094738807843860e-3,
                             2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kTailF[] = {1.0,
                             5.99832206555887937690e-1,
                             1.36929880922735805310e-1,
                             1.48753612908506148525e-2,
                             7.86869131145613259100e-4,
                             1.84631831751005468180e-5,
                             1.42151175831644588870e-7,
                             2.04426310338993978564e-15};

// The x with P(standard normal < x) = p, 0 < p < 1.
double InverseNormal(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kCentreA, r) / Polynomial(kCentreB, r);
  }
  double r = std::sqrt(-Log(q < 0 ? p : 1 - p));
  double x = 0;
  if (r <= 5) {
    r -= 1.6;
    x = Polynomial(kMiddleC, r) / Polynomial(kMiddleD, r);
  } else {
    r -= 5;
    x = Polynomial(kTailE, r) / Polynomial(kTailF, r);
  }
  return q < 0 ? -x : x;
}

// Mixes all bits of x into all bits of the result (the finaliser of SplitMix64).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

uint64_t StreamOf(std::string_view name) { return Hash64(name); }

uint64_t Rng::U64(uint64_t index) const {
  const std::array<uint32_t, 4> block =
      Philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                  static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                 {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  return uint64_t{block[1]} << 32 | block[0];
}

double Rng::Uniform(uint64_t index) const {
  return static_cast<double>(U64(index) >> 11) * 0x1.0p-53;
}

float Rng::Normal(uint64_t index) const {
  // The middle of one of 2^52 equal steps: exact, and neither 0 nor 1.
  const double p = (static_cast<double>(U64(index) >> 12) + 0.5) * 0x1.0p-52;
  return static_cast<float>(InverseNormal(p));
}

uint64_t Rng::Below(uint64_t index, uint64_t n) const {
  CRIA_CHECK(n > 0);
  return static_cast<uint64_t>(static_cast<unsigned __int128>(U64(index)) * n >> 64);
}

KeyedPermutation::KeyedPermutation(uint64_t seed, uint64_t stream, uint64_t n) : n_(n) {
  const int bits = n <= 1 ? 0 : 64 - std::countl_zero(n - 1);
  half_bits_ = (bits + 1) / 2;
  const Rng rng(seed, stream);
  for (int round = 0; round < kNumRounds; ++round) round_keys_[round] = rng.U64(round);
}

uint64_t KeyedPermutation::At(uint64_t i) const {
  CRIA_CHECK_LT(i, n_);
  if (n_ == 1) return 0;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t value = i;
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & mask;
    for (const uint64_t key : round_keys_) {
      const uint64_t next = left ^ (Mix(right + key) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= n_);
  return value;
}

}  // namespace cria
