#include "trainer/bench/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/clock.h"
#include "base/file.h"

namespace cria::trainer {
namespace {

constexpr std::string_view kReady = "ready ";
constexpr std::string_view kError = "error ";

}  // namespace

StatusOr<std::string> FindPeerScript(const std::string& name) {
  std::string runfiles;
  if (const char* test = std::getenv("TEST_SRCDIR")) {
    runfiles = test;
  } else {
    std::error_code error;
    runfiles = std::filesystem::read_symlink("/proc/self/exe", error).string() + ".runfiles";
  }
  const std::string path = JoinPath(runfiles, "cria/tools/peers/" + name);
  if (!Exists(path)) return NotFoundError("no ", path, "; build this program with Bazel");
  return path;
}

StatusOr<std::unique_ptr<PeerProcess>> PeerProcess::Start(const std::string& python,
                                                          const std::string& script,
                                                          double deadline_s) {
  std::unique_ptr<PeerProcess> peer(new PeerProcess());
  peer->name_ = StrCat(python, " ", BaseName(script));
  CRIA_RETURN_IF_ERROR(peer->Spawn(python, script));
  CRIA_ASSIGN_OR_RETURN(const std::string line, peer->ReadLine(deadline_s));
  if (!line.starts_with(kReady)) {
    return FailedPreconditionError(peer->name_, ": ",
                                   line.starts_with(kError) ? line.substr(kError.size()) : line);
  }
  peer->greeting_ = line.substr(kReady.size());
  return peer;
}

Status PeerProcess::Spawn(const std::string& python, const std::string& script) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoError(errno, "socketpair");
  }
  socket_ = ends[0];
  errors_ = std::tmpfile();
  if (errors_ == nullptr) {
    close(ends[1]);
    return ErrnoError(errno, "a temporary file");
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(errors_), STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A group of its own: its compilers and workers end with it.
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::string program = python, argument = script;
  char* argv[] = {program.data(), argument.data(), nullptr};
  const int error = posix_spawnp(&pid_, program.c_str(), &actions, &attributes, argv, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    pid_ = -1;
    return ErrnoError(error, StrCat("run ", python));
  }
  return OkStatus();
}

PeerProcess::~PeerProcess() {
  Kill();
  if (errors_ != nullptr) std::fclose(errors_);
}

void PeerProcess::Kill() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

StatusOr<std::string> PeerProcess::Ask(const std::string& line, double deadline_s) {
  if (pid_ < 0) return UnavailableError(name_, ": \"", line, "\": it is gone");
  Status sent = Send(line + "\n");
  StatusOr<std::string> answer = sent.ok() ? ReadLine(deadline_s) : StatusOr<std::string>(sent);
  if (!answer.ok()) return Annotate(answer.status(), StrCat("\"", line, "\""));
  if (answer->starts_with(kError)) {
    return InternalError(name_, ": \"", line, "\": ", answer->substr(kError.size()));
  }
  return answer;
}

Status PeerProcess::Send(std::string text) {
  while (!text.empty()) {
    const ssize_t n = send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Kill();
      return UnavailableError(name_, ": it ended", LastWords());
    }
    text.erase(0, static_cast<size_t>(n));
  }
  return OkStatus();
}

StatusOr<std::string> PeerProcess::ReadLine(double deadline_s) {
  const double end = RealClock()->MonotonicSeconds() + deadline_s;
  for (;;) {
    const size_t newline = pending_.find('\n');
    if (newline != std::string::npos) {
      std::string line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return line;
    }
    const double left_s = end - RealClock()->MonotonicSeconds();
    pollfd wait = {.fd = socket_, .events = POLLIN, .revents = 0};
    const int ready = left_s > 0 ? poll(&wait, 1, static_cast<int>(left_s * 1e3) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      Kill();
      return DeadlineExceededError(name_, ": no answer within ", deadline_s, " s", LastWords());
    }
    char buffer[4096];
    const ssize_t n = ready < 0 ? -1 : recv(socket_, buffer, sizeof(buffer), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Kill();
      return UnavailableError(name_, ": it ended", LastWords());
    }
    pending_.append(buffer, static_cast<size_t>(n));
  }
}

std::string PeerProcess::LastWords() const {
  std::fseek(errors_, 0, SEEK_END);
  const long size = std::ftell(errors_);
  std::fseek(errors_, std::max(0L, size - 1000), SEEK_SET);
  char buffer[1000];
  std::string text(buffer, std::fread(buffer, 1, sizeof(buffer), errors_));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.empty()) return "";
  return "; it said: " + text.substr(text.rfind('\n') + 1);
}

}  // namespace cria::trainer
