// Time as a dependency: code takes a Clock* and never asks the system, so that tests own the time.
//
//   Trainer(Options options, Clock* clock);     // main() passes RealClock()
//   FakeClock clock;  clock.Advance(12.5);      // a test
//
// Thread-safe, all of it.

#ifndef CRIA_BASE_CLOCK_H_
#define CRIA_BASE_CLOCK_H_

#include <atomic>

namespace cria {

class Clock {
 public:
  virtual ~Clock() = default;
  // Seconds since some start; never goes back. For durations.
  virtual double MonotonicSeconds() = 0;
  // Seconds since 1970-01-01 UTC. For stamps in files; may jump.
  virtual double UnixSeconds() = 0;
};

// The system's clock. Lives for ever.
Clock* RealClock();

// Stands still until told otherwise.
class FakeClock : public Clock {
 public:
  explicit FakeClock(double unix_seconds = 1'700'000'000) : unix_start_(unix_seconds) {}
  double MonotonicSeconds() override { return elapsed_; }
  double UnixSeconds() override { return unix_start_ + elapsed_; }
  void Advance(double seconds) { elapsed_ += seconds; }

 private:
  const double unix_start_;
  std::atomic<double> elapsed_{0};
};

}  // namespace cria

#endif  // CRIA_BASE_CLOCK_H_
