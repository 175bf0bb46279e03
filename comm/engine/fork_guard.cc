#include "comm/engine/fork_guard.h"

#include <sys/mman.h>

namespace cria::comm {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

ForkGuard::ForkGuard() {
  void* page =
      mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, kPageBytes, MADV_WIPEONFORK) != 0) {
    munmap(page, kPageBytes);
    return;
  }
  page_ = static_cast<volatile uint64_t*>(page);
  *page_ = 1;
}

ForkGuard::~ForkGuard() {
  if (page_ != nullptr) munmap(const_cast<uint64_t*>(page_), kPageBytes);
}

}  // namespace cria::comm
