#include "trainer/bench/scratch_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/file.h"
#include "base/str.h"

namespace cria::trainer {

StatusOr<std::unique_ptr<ScratchFolder>> ScratchFolder::Create() {
  const char* const base = std::getenv("TMPDIR");
  std::string path = JoinPath(base != nullptr ? base : "/tmp", "cria_bench_XXXXXX");
  if (mkdtemp(path.data()) == nullptr) return ErrnoError(errno, StrCat("create ", path));
  return std::unique_ptr<ScratchFolder>(new ScratchFolder(path));
}

ScratchFolder::~ScratchFolder() { (void)RemoveAll(path_); }

std::string ScratchFolder::File(const std::string& name) const { return JoinPath(path_, name); }

}  // namespace cria::trainer
