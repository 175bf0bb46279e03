#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "base/check.h"
#include "base/file.h"
#include "tests/fuzz/fuzz_target.h"

namespace cria::fuzz {
namespace {

struct Scratch {
  Scratch() {
    const char* root = std::getenv("TEST_TMPDIR");
    if (root == nullptr) root = std::getenv("TMPDIR");
    dir = JoinPath(root != nullptr ? root : "/tmp", StrCat("cria_fuzz_", getpid()));
    const Status made = MakeDirs(dir);
    CRIA_CHECK(made.ok(), Message(made));
  }
  ~Scratch() { (void)RemoveAll(dir); }
  std::string dir;
};

}  // namespace

const std::string& ScratchDir() {
  static const Scratch scratch;
  return scratch.dir;
}

std::string ScratchFile(const std::string& name, std::string_view bytes) {
  const std::string path = JoinPath(ScratchDir(), name);
  // A new file each time: ext4 flushes one that was cut to nothing and written again.
  unlink(path.c_str());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  CRIA_CHECK(fd >= 0, "open ", path);
  CRIA_CHECK_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  close(fd);
  return path;
}

Status NamesPlace(const Status& status, std::string_view place) {
  if (status.ok()) return status;
  const std::string message = Message(status);
  CRIA_CHECK(message.find(place) != std::string::npos, "\"", message, "\" does not name ", place);
  CRIA_CHECK(message.size() < 4096, "a message of ", message.size(),
             " bytes: ", message.substr(0, 200));
  return status;
}

void Touch(std::string_view bytes) {
  uint8_t sum = 0;
  for (const char c : bytes) sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(c));
  // Keeps the loop: the compiler must think that somebody looks.
  asm volatile("" : : "r"(sum));
}

FileChoice ChooseFile(std::string_view input, size_t num_files) {
  if (input.empty()) return {};
  return {.index = static_cast<uint8_t>(input[0]) % num_files, .bytes = input.substr(1)};
}

std::string InputFor(size_t index, std::string_view bytes) {
  return StrCat(static_cast<char>(index), bytes);
}

}  // namespace cria::fuzz
