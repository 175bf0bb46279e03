// The digest of a plan: a hash of the numbers that make it, the same on any machine.
//
//   PlanDigest digest;
//   digest.Add({kind, dtype, count});
//   plan.digest = digest.value();
//
// Thread-compatible.

#ifndef CRIA_COMM_PLAN_DIGEST_H_
#define CRIA_COMM_PLAN_DIGEST_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "base/hash.h"

namespace cria::comm {

class PlanDigest {
 public:
  void Add(std::initializer_list<int64_t> numbers) {
    Add(std::span(numbers.begin(), numbers.end()));
  }
  void Add(std::span<const int64_t> numbers) {
    for (const int64_t number : numbers) Mix(static_cast<uint64_t>(number));
  }
  uint64_t value() const { return value_; }

 private:
  // Of eight bytes, least first.
  void Mix(uint64_t number) {
    char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (8 * i));
    value_ = Hash64(std::string_view(bytes, 8), value_);
  }

  uint64_t value_ = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_DIGEST_H_
