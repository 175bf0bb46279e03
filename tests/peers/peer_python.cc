#include "tests/peers/peer_python.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>

namespace cria {
namespace {

constexpr int kPackagesMissing = 77;

std::string ShellQuoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

StatusOr<std::string> RunPeer(const std::string& script, const std::vector<std::string>& args) {
  const char* python = std::getenv("CRIA_PEER_PYTHON");
  if (python == nullptr || *python == '\0') {
    return UnavailableError("set CRIA_PEER_PYTHON to a Python interpreter with the peer's package");
  }
  std::string command = StrCat(ShellQuoted(python), " ", ShellQuoted(script));
  for (const std::string& arg : args) command += " " + ShellQuoted(arg);
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return InternalError("cannot run ", command);
  std::string out;
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    out.append(buffer, got);
  const int status = ::pclose(pipe);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == kPackagesMissing) return UnavailableError(python, " lacks a package: ", out);
  if (code != 0) return InternalError(command, ": exit status ", code, ": ", out);
  return out;
}

}  // namespace cria
