#include "tests/support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"

extern char** environ;

namespace cria {
namespace {

std::string TempRoot() {
  const char* root = std::getenv("TEST_TMPDIR");
  return root == nullptr ? "/tmp" : root;
}

// Ours, with `over` in place of equal names.
std::vector<std::string> Environment(const std::vector<std::pair<std::string, std::string>>& over) {
  std::vector<std::string> lines;
  for (char** line = environ; *line != nullptr; ++line) {
    bool replaced = false;
    for (const auto& [name, value] : over) {
      const std::string prefix = name + "=";
      if (std::strncmp(*line, prefix.c_str(), prefix.size()) == 0) replaced = true;
    }
    if (!replaced) lines.push_back(*line);
  }
  for (const auto& [name, value] : over) lines.push_back(StrCat(name, "=", value));
  return lines;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

bool WaitUntil(const std::function<bool()>& condition, double deadline_seconds) {
  const double end = RealClock()->MonotonicSeconds() + deadline_seconds;
  while (!condition()) {
    if (RealClock()->MonotonicSeconds() > end) return false;
    poll(nullptr, 0, 1);
  }
  return true;
}

std::string FreshDir(const std::string& name) {
  const std::string dir = JoinPath(TempRoot(), name);
  CRIA_CHECK(RemoveAll(dir).ok());
  CRIA_CHECK(MakeDirs(dir).ok());
  return dir;
}

Process::Process(const std::vector<std::string>& args, const ProcessOptions& options) {
  static int count = 0;
  const std::string base = JoinPath(TempRoot(), StrCat("process_", getpid(), "_", count++));
  out_path_ = base + ".out";
  err_path_ = base + ".err";
  std::vector<std::string> words = args;
  std::vector<std::string> environment = Environment(options.env);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_path_.c_str(), kFlags, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err_path_.c_str(), kFlags, 0600);
  const int error = posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, Pointers(words).data(),
                                Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  CRIA_CHECK(error == 0, "spawn ", words[0], ": ", std::strerror(error));
}

Process::~Process() {
  if (!ended()) {
    Signal(SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  unlink(out_path_.c_str());
  unlink(err_path_.c_str());
}

void Process::Signal(int signal_number) const {
  if (!reaped_) kill(pid_, signal_number);
}

bool Process::ended() {
  if (!reaped_) reaped_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return reaped_;
}

std::string Process::err() const {
  const StatusOr<std::string> text = ReadFile(err_path_);
  return text.ok() ? *text : std::string();
}

Ended Process::Wait(double deadline_seconds) {
  Ended result;
  if (!WaitUntil([this] { return ended(); }, deadline_seconds)) {
    result.timed_out = true;
    Signal(SIGKILL);
    reaped_ = waitpid(pid_, &status_, 0) == pid_;
  }
  if (WIFEXITED(status_)) result.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) result.signal = WTERMSIG(status_);
  result.out = ReadFile(out_path_).value_or("");
  result.err = err();
  return result;
}

Ended RunProcess(const std::vector<std::string>& args, const ProcessOptions& options) {
  return Process(args, options).Wait();
}

}  // namespace cria
