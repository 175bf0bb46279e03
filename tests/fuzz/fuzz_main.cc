// libFuzzer's entry points around a target. Built by tools/fuzz.sh with --config=fuzz.
//
// Memory is bounded as in replay_test.cc, by hooks in AddressSanitizer's allocator: an input for
// which the reader holds more than it justifies ends the program like any other finding.
//
// With CRIA_FUZZ_SEEDS=FOLDER the program writes the target's seeds there and ends.

#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "base/file.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

int WriteInputs(const std::vector<std::string>& inputs, const char* kind, const std::string& dir) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string path = cria::JoinPath(dir, cria::StrCat(kind, "_", i));
    if (const cria::Status status = cria::WriteFileAtomic(path, inputs[i]); !status.ok()) {
      std::fprintf(stderr, "%s\n", cria::Message(status).c_str());
      return 1;
    }
  }
  return 0;
}

// Bytes held, and what may be held while an input is read.
std::atomic<int64_t> held{0};
std::atomic<int64_t> limit{INT64_MAX};

void OnMalloc(const volatile void*, size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  const int64_t now = held.fetch_add(bytes) + bytes;
  if (now <= limit.load()) return;
  limit = INT64_MAX;  // the message allocates too
  CRIA_CHECK(false, "an allocation of ", bytes, " bytes, over what the input justifies");
}

void OnFree(const volatile void* block) {
  if (block == nullptr) return;
  held -= static_cast<int64_t>(__sanitizer_get_allocated_size(
      const_cast<const void*>(static_cast<const volatile void*>(block))));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* dir = std::getenv("CRIA_FUZZ_SEEDS");
  if (dir == nullptr) {
    // Tables that the first input makes are the program's, not the input's.
    (void)cria::fuzz::TheTarget().read(cria::fuzz::TheTarget().seeds()[0]);
    CRIA_CHECK(__sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree) != 0);
    return 0;
  }
  const cria::fuzz::Target& target = cria::fuzz::TheTarget();
  int failed = WriteInputs(target.seeds(), "seed", dir);
  if (target.regressions != nullptr) {
    failed |= WriteInputs(target.regressions(), "regression", dir);
  }
  std::exit(failed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const cria::fuzz::Target& target = cria::fuzz::TheTarget();
  limit = held.load() + static_cast<int64_t>(target.memory_factor * size + target.memory_base);
  (void)target.read({reinterpret_cast<const char*>(data), size});
  limit = INT64_MAX;
  return 0;
}
