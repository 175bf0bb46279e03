#include "trainer/data/bible.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

extern char** environ;

namespace cria::trainer {
namespace {

constexpr char kRange[] = "Gen1:1-Rev22:21";
constexpr size_t kOutputBytesMax = size_t{64} << 20;
constexpr double kPollSeconds = 0.1;

// A program whose standard output we read.
class ChildProcess {
 public:
  ~ChildProcess() {
    if (out_ >= 0) close(out_);
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Reap();
    }
  }

  Status Start(const std::string& program) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoError(errno, "make a pipe");
    out_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    std::string name = program;
    std::string flag = "-f";
    std::string range = kRange;
    char* const argv[] = {name.data(), flag.data(), range.data(), nullptr};
    // It ends by the signals that the threads here may have blocked.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t nothing_blocked;
    sigemptyset(&nothing_blocked);
    posix_spawnattr_setsigmask(&attributes, &nothing_blocked);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    const int error = posix_spawnp(&pid_, program.c_str(), &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error == 0) return OkStatus();
    pid_ = -1;
    if (error != ENOENT) return ErrnoError(error, StrCat("run ", program));
    return FailedPreconditionError(
        "run ", program, ": there is no such program; the default corpus is printed by Debian's ",
        "package bible-kjv (apt-get install bible-kjv)");
  }

  StatusOr<std::string> ReadAll(const BibleOptions& options) {
    const double end = options.clock->MonotonicSeconds() + options.deadline_s;
    std::string output;
    for (;;) {
      if (options.clock->MonotonicSeconds() >= end) {
        return DeadlineExceededError("run ", options.program, ": not done after ",
                                     HumanSeconds(options.deadline_s));
      }
      pollfd ready = {.fd = out_, .events = POLLIN, .revents = 0};
      const int num_ready = poll(&ready, 1, static_cast<int>(kPollSeconds * 1000));
      if (num_ready == 0 || (num_ready < 0 && errno == EINTR)) continue;
      if (num_ready < 0) return ErrnoError(errno, StrCat("wait for ", options.program));
      const size_t old_size = output.size();
      output.resize(old_size + (size_t{64} << 10));
      const ssize_t count = read(out_, output.data() + old_size, output.size() - old_size);
      output.resize(old_size + static_cast<size_t>(std::max<ssize_t>(count, 0)));
      if (count < 0 && errno != EINTR) return ErrnoError(errno, StrCat("read ", options.program));
      if (count == 0) return output;
      if (output.size() > kOutputBytesMax) {
        return DataLossError("run ", options.program, ": it printed over ",
                             HumanBytes(kOutputBytesMax));
      }
    }
  }

  // Waits for its end. The caller has seen the end of its output.
  int Reap() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

// The length of "1Sm12" in "1Sm12:3 And ...", and where the verse's text starts; 0 when the line
// has no label: letters and digits, a colon, digits, a space.
std::pair<size_t, size_t> FindLabel(std::string_view line) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  size_t at = 0;
  while (at < line.size() && (is_digit(line[at]) || is_letter(line[at]))) ++at;
  const size_t chapter_end = at;
  if (at == 0 || !is_digit(line[at - 1]) || at == line.size() || line[at] != ':') return {0, 0};
  ++at;
  const size_t verse_begin = at;
  while (at < line.size() && is_digit(line[at])) ++at;
  if (at == verse_begin || at == line.size() || line[at] != ' ') return {0, 0};
  return {chapter_end, at + 1};
}

}  // namespace

StatusOr<std::vector<std::string>> ParseVerses(std::string_view output) {
  std::vector<std::string> chapters;
  std::string_view chapter;
  for (int64_t line_number = 1; !output.empty(); ++line_number) {
    const size_t end = std::min(output.find('\n'), output.size());
    const std::string_view line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    const auto [chapter_bytes, text_at] = FindLabel(line);
    if (chapter_bytes == 0) {
      return DataLossError("bible: line ", line_number, " has no label like \"Ge1:1 \": \"",
                           line.substr(0, 40), "\"");
    }
    if (line.substr(0, chapter_bytes) != chapter) {
      chapter = line.substr(0, chapter_bytes);
      chapters.emplace_back();
    }
    chapters.back().append(line.substr(text_at)).push_back('\n');
  }
  if (chapters.empty()) return DataLossError("bible: the program printed no verse");
  return chapters;
}

StatusOr<std::vector<std::string>> ReadBible(const BibleOptions& options) {
  ChildProcess child;
  CRIA_RETURN_IF_ERROR(child.Start(options.program));
  CRIA_ASSIGN_OR_RETURN(const std::string output, child.ReadAll(options));
  const int status = child.Reap();
  if (status != 0) {
    return DataLossError("run ", options.program, ": it ended with wait status ", status);
  }
  return ParseVerses(output);
}

}  // namespace cria::trainer
