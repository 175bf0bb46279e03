// A reader under hostile input: what each file <reader>_target.cc of this folder defines.
//
// The same functions run twice: under libFuzzer with AddressSanitizer (fuzz_main.cc, by
// tools/fuzz.sh), and over mutations of the seeds in the default suite (replay_test.cc).
//
//   namespace cria::fuzz {
//   const Target& TheTarget() {
//     static const Target target = {.name = "params", .read = ReadParams, .seeds = ParamsSeeds};
//     return target;
//   }
//   }
//
// `read` hands the bytes to the reader and, when they are accepted, uses all that was read, with
// CRIA_CHECKs for what must hold. It must not crash, hang or allocate more than the bytes justify,
// whatever they are. Single-threaded.

#ifndef CRIA_TESTS_FUZZ_FUZZ_TARGET_H_
#define CRIA_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cria::fuzz {

struct Target {
  const char* name = nullptr;
  // OK: accepted, and all of it usable. An error: refused.
  Status (*read)(std::string_view input) = nullptr;
  // Valid inputs, small and different: each must be accepted.
  std::vector<std::string> (*seeds)() = nullptr;
  // Inputs that once broke the reader, or were reported to break others: no crash, that is all.
  std::vector<std::string> (*regressions)() = nullptr;
  // What the reader may hold at once: memory_factor * input bytes + memory_base.
  size_t memory_factor = 64;
  size_t memory_base = size_t{1} << 20;
};

// Each target's library defines it.
const Target& TheTarget();

// This process's own folder for inputs that a reader wants as files. Removed at the end.
const std::string& ScratchDir();

// Replaces the file `name` in ScratchDir(), fast and without a sync; returns its path.
std::string ScratchFile(const std::string& name, std::string_view bytes);

// CHECKs that an error says something and names `place` (a path, a file, ...). Returns it.
Status NamesPlace(const Status& status, std::string_view place);

// Reads each byte, so that a sanitizer or a page fault sees a view beyond its memory.
void Touch(std::string_view bytes);

// An input for a reader of several files: which of them is replaced, then its bytes.
struct FileChoice {
  size_t index = 0;
  std::string_view bytes;
};
FileChoice ChooseFile(std::string_view input, size_t num_files);
std::string InputFor(size_t index, std::string_view bytes);

}  // namespace cria::fuzz

#endif  // CRIA_TESTS_FUZZ_FUZZ_TARGET_H_
