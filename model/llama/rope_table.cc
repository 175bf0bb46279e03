#include "model/llama/rope_table.h"

#include <cmath>
#include <numbers>

namespace cria::model {
namespace {

// Llama 3.1: long wavelengths are stretched, short ones kept, those between blended.
double ScaleLlama3(double frequency, const RopeScaling& scaling) {
  const double original = static_cast<double>(scaling.original_max_positions);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  if (wavelength > original / scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

std::vector<double> RopeFrequencies(const LlamaConfig& config) {
  const int64_t half = config.HeadDim() / 2;
  std::vector<double> frequencies(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    const double exponent = static_cast<double>(i) / static_cast<double>(half);
    double frequency = std::pow(config.rope_theta, -exponent);
    if (config.rope_scaling.type == "linear") frequency /= config.rope_scaling.factor;
    if (config.rope_scaling.type == "llama3") {
      frequency = ScaleLlama3(frequency, config.rope_scaling);
    }
    frequencies[static_cast<size_t>(i)] = frequency;
  }
  return frequencies;
}

void FillRopeTable(const LlamaConfig& config, const Tensor& cosines, const Tensor& sines) {
  const std::vector<double> frequencies = RopeFrequencies(config);
  const int64_t half = cosines.dim(1);
  for (int64_t position = 0; position < cosines.dim(0); ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequencies[static_cast<size_t>(i)];
      cosines.f32()[position * half + i] = static_cast<float>(std::cos(angle));
      sines.f32()[position * half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace cria::model
