// Damaged copies of valid inputs: truncations, flipped bytes and bits, extreme numbers in binary
// and in text, swapped, repeated and removed chunks, deep nesting.
//
//   for (const std::string& damaged : Mutations(seed, /*count=*/2000, /*key=*/1)) read(damaged);
//
// The same arguments give the same list on every machine. Thread-safe.

#ifndef CRIA_TESTS_FUZZ_MUTATE_H_
#define CRIA_TESTS_FUZZ_MUTATE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace cria::fuzz {

// Calls `use` with each of about `count` damaged copies of `seed`, half of them truncations and
// single flips near the start, where headers are.
void ForEachMutation(std::string_view seed, int64_t count, uint64_t key,
                     const std::function<void(const std::string&)>& use);

}  // namespace cria::fuzz

#endif  // CRIA_TESTS_FUZZ_MUTATE_H_
