#include "base/clock.h"

#include <chrono>

namespace cria {
namespace {

class SystemClock : public Clock {
 public:
  double MonotonicSeconds() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  double UnixSeconds() override {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace

Clock* RealClock() {
  static SystemClock clock;
  return &clock;
}

}  // namespace cria
