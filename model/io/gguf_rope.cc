#include "model/io/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "base/check.h"
#include "model/io/gguf_text.h"
#include "model/llama/rope_table.h"

namespace cria::model {
namespace {

// Of a divisor, relative. Our own files hold the nearest floats; llama.cpp's converter computes in
// fp32, which leaves up to 2.1e-6 (heads of 160, factor 32).
constexpr double kTolerances[] = {6e-8, 1e-5};

LlamaConfig Unscaled(const LlamaConfig& config) {
  LlamaConfig out = config;
  out.rope_scaling = RopeScaling();
  return out;
}

// Looks for the scaling behind some divisors, one guess after another.
class Search {
 public:
  Search(std::span<const float> divisors, const LlamaConfig& config, double tolerance)
      : divisors_(divisors),
        config_(Unscaled(config)),
        frequencies_(RopeFrequencies(config_)),
        tolerance_(tolerance) {}

  // Low 1, high 4: the defaults, and Llama's own.
  std::optional<RopeScaling> TryDefaults(double factor, int64_t original) const {
    RopeScaling scaling;
    scaling.type = "llama3";
    scaling.factor = factor;
    scaling.original_max_positions = original;
    if (Fits(scaling)) return scaling;
    return std::nullopt;
  }

  // Low and high as they follow from original and the blended frequencies.
  std::optional<RopeScaling> TrySolved(double factor, int64_t original) const {
    const std::optional<Line> line = Fit(factor);
    if (!line) return std::nullopt;
    RopeScaling scaling;
    scaling.type = "llama3";
    scaling.factor = factor;
    scaling.original_max_positions = original;
    // s = a / wavelength + b with a = original / (high - low), b = -low / (high - low).
    const double span = static_cast<double>(original) / line->slope;
    scaling.low_freq_factor = Rounded(-line->intercept * span);
    scaling.high_freq_factor = Rounded((1 - line->intercept) * span);
    if (Fits(scaling)) return scaling;
    return std::nullopt;
  }

  // The original that low = 1 asks for, where blended frequencies tell.
  std::optional<int64_t> OriginalForLowOne(double factor) const {
    const std::optional<Line> line = Fit(factor);
    if (!line || line->intercept >= 0) return std::nullopt;
    const double original = line->slope / -line->intercept;
    if (!(original >= 1 && original < 1e9)) return std::nullopt;
    return std::llround(original);
  }

 private:
  struct Line {
    double slope;
    double intercept;
  };

  bool Fits(const RopeScaling& scaling) const {
    LlamaConfig config = config_;
    config.rope_scaling = scaling;
    if (!Validate(config, "").ok()) return false;
    const std::vector<double> scaled = RopeFrequencies(config);
    for (size_t i = 0; i < divisors_.size(); ++i) {
      const double expected = frequencies_[i] / scaled[i];
      if (!(std::fabs(divisors_[i] - expected) <= tolerance_ * expected)) return false;
    }
    return true;
  }

  // The blend s of the frequencies between as a line over 1 / wavelength, by least squares.
  std::optional<Line> Fit(double factor) const {
    double n = 0, sum_x = 0, sum_s = 0, sum_xx = 0, sum_xs = 0;
    for (size_t i = 0; i < divisors_.size(); ++i) {
      const double divisor = divisors_[i];
      if (divisor <= 1 || divisor >= factor) continue;
      const double x = frequencies_[i] / (2 * std::numbers::pi);
      const double s = (1 / divisor - 1 / factor) / (1 - 1 / factor);
      n += 1, sum_x += x, sum_s += s, sum_xx += x * x, sum_xs += x * s;
    }
    const double spread = n * sum_xx - sum_x * sum_x;
    if (n < 2 || !(spread > 0)) return std::nullopt;
    const double slope = (n * sum_xs - sum_x * sum_s) / spread;
    if (!(slope > 0)) return std::nullopt;
    return Line{slope, (sum_s - slope * sum_x) / n};
  }

  // People write quarters; what fp32 left beside one is dropped.
  static double Rounded(double value) {
    const double quarters = std::round(value * 4) / 4;
    return std::fabs(value - quarters) < 1e-3 ? quarters : value;
  }

  const std::span<const float> divisors_;
  const LlamaConfig config_;
  const std::vector<double> frequencies_;
  const double tolerance_;
};

// Round numbers that people use first, then what the blended frequencies ask for.
std::optional<RopeScaling> TryFactor(const Search& search, double factor, int64_t max_positions,
                                     int64_t original_hint) {
  if (original_hint > 0) {
    if (const auto found = search.TryDefaults(factor, original_hint)) return found;
    if (const auto found = search.TrySolved(factor, original_hint)) return found;
  }
  std::vector<int64_t> originals = {8192, max_positions};
  for (int64_t power = 64; power <= (1 << 20); power *= 2) originals.push_back(power);
  for (const int64_t original : originals) {
    if (const auto found = search.TryDefaults(factor, original)) return found;
  }
  if (const auto original = search.OriginalForLowOne(factor)) {
    if (const auto found = search.TryDefaults(factor, *original)) return found;
    if (const auto found = search.TrySolved(factor, *original)) return found;
  }
  return search.TrySolved(factor, 8192);
}

}  // namespace

std::vector<float> RopeDivisors(const LlamaConfig& config) {
  CRIA_CHECK(config.rope_scaling.type == "llama3");
  const std::vector<double> scaled = RopeFrequencies(config);
  const std::vector<double> plain = RopeFrequencies(Unscaled(config));
  std::vector<float> divisors;
  for (size_t i = 0; i < plain.size(); ++i) {
    divisors.push_back(static_cast<float>(plain[i] / scaled[i]));
  }
  return divisors;
}

StatusOr<RopeScaling> ScalingFromDivisors(std::span<const float> divisors,
                                          const LlamaConfig& config, int64_t original_hint) {
  const float max = divisors.empty() ? 1 : *std::max_element(divisors.begin(), divisors.end());
  // The factor itself stands in the tensor unless no wavelength is that long.
  std::vector<double> factors = {ShortestDouble(max)};
  for (double factor = 2; factor <= 128; factor *= 2) {
    if (factor > max) factors.push_back(factor);
  }
  for (const double tolerance : kTolerances) {
    const Search search(divisors, config, tolerance);
    for (const double factor : factors) {
      if (!(factor >= 1)) continue;
      if (const auto found = TryFactor(search, factor, config.max_positions, original_hint)) {
        return *found;
      }
    }
  }
  return InvalidArgumentError(
      "no scaling of Llama 3.1's kind (factor, low_freq_factor, "
      "high_freq_factor, original_max_position_embeddings) gives its ",
      divisors.size(), " divisors, which reach ", max, ", for rope_theta ", config.rope_theta);
}

}  // namespace cria::model
