// How much memory the program holds, counted at malloc and its kin: for tests that bound it.
//
//   ResetPeak();
//   reader(input);
//   EXPECT_LE(PeakBytes(), 64 * input.size() + (1 << 20));
//
// Linking the library replaces the process's allocator functions by counting ones over glibc's. In
// builds with a sanitizer, which has its own, Counts() is false and nothing is counted.
// Thread-safe; the peak is of all threads together.

#ifndef CRIA_TESTS_FUZZ_MEMORY_COUNT_H_
#define CRIA_TESTS_FUZZ_MEMORY_COUNT_H_

#include <cstddef>

namespace cria::fuzz {

bool Counts();

// From now on PeakBytes counts what is held above what is held now.
void ResetPeak();
size_t PeakBytes();

}  // namespace cria::fuzz

#endif  // CRIA_TESTS_FUZZ_MEMORY_COUNT_H_
