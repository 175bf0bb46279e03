// Repeated timings of one thing, summed up: median, best, spread.
//
//   Samples step_s;
//   for (...) step_s.Add(seconds);
//   step_s.Median();  step_s.Best();  step_s.Spread();
//
// Two things timed in turns are compared by MedianRatio: what disturbs the machine disturbs both.
// Thread-compatible.

#ifndef CRIA_TRAINER_BENCH_SAMPLES_H_
#define CRIA_TRAINER_BENCH_SAMPLES_H_

#include <cstddef>
#include <vector>

namespace cria::trainer {

class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  const std::vector<double>& values() const { return values_; }

  // 0 when there are none.
  double Median() const;
  // The least: for times.
  double Best() const;
  // Interquartile range over the median, 0.1 = 10 %.
  double Spread() const;

 private:
  std::vector<double> values_;  // in the order of time
};

// Median of numerator[i] / denominator[i] over the rounds that both have; 0 when there are none.
double MedianRatio(const Samples& numerator, const Samples& denominator);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_SAMPLES_H_
