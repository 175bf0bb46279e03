#include "trainer/bench/samples.h"

#include <algorithm>
#include <cmath>

namespace cria::trainer {
namespace {

// Linear interpolation between neighbours in the sorted values.
double Quantile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - std::floor(at)) * (values[above] - values[below]);
}

}  // namespace

double Samples::Median() const { return Quantile(values_, 0.5); }

double Samples::Best() const { return Quantile(values_, 0); }

double Samples::Spread() const {
  const double median = Median();
  return median == 0 ? 0 : (Quantile(values_, 0.75) - Quantile(values_, 0.25)) / median;
}

double MedianRatio(const Samples& numerator, const Samples& denominator) {
  Samples ratios;
  for (size_t i = 0; i < std::min(numerator.size(), denominator.size()); ++i) {
    ratios.Add(numerator.values()[i] / denominator.values()[i]);
  }
  return ratios.Median();
}

}  // namespace cria::trainer
