#include "comm/bench/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "comm/net/free_port.h"
#include "comm/rendezvous/rank_environment.h"

extern char** environ;

namespace cria::comm {
namespace {

constexpr size_t kCaptureBytesMax = size_t{4} << 20;

std::vector<std::string> EnvironmentOf(const std::map<std::string, std::string>& over) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (over.count(text.substr(0, text.find('='))) == 0) all.push_back(text);
  }
  for (const auto& [name, value] : over) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

volatile sig_atomic_t interrupted = 0;

// While it lives, Ctrl-C and SIGTERM are noted instead of ending the process.
class SignalGuard {
 public:
  SignalGuard() {
    interrupted = 0;
    struct sigaction note = {};
    note.sa_handler = [](int signal) { interrupted = signal; };
    sigaction(SIGINT, &note, &old_int_);
    sigaction(SIGTERM, &note, &old_term_);
  }
  ~SignalGuard() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
  }

 private:
  struct sigaction old_int_ = {};
  struct sigaction old_term_ = {};
};

// The program as a child in its own process group; its output goes to `out` unless that is -1.
StatusOr<pid_t> Spawn(const std::string& program, std::vector<std::string> command,
                      const std::map<std::string, std::string>& environment, int out) {
  std::vector<std::string> variables = EnvironmentOf(environment);
  const std::vector<char*> argv = Pointers(command);
  const std::vector<char*> envp = Pointers(variables);
  const pid_t pid = fork();
  if (pid < 0) return InternalError("fork: ", std::strerror(errno));
  if (pid == 0) {
    // Only calls that are safe after fork in a program with threads.
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // A job in the background must not read the terminal.
    const int nothing = open("/dev/null", O_RDONLY);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) _exit(126);
    if (out >= 0 && (dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0)) _exit(126);
    execve(program.c_str(), argv.data(), envp.data());
    _exit(127);
  }
  return pid;
}

std::string SelfPath() {
  std::array<char, 4096> path = {};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return length > 0 ? std::string(path.data(), static_cast<size_t>(length)) : "";
}

StatusOr<std::string> FindProgram(const std::string& name) {
  const char* const variable = std::getenv("PATH");
  std::string path = variable == nullptr ? "/usr/bin:/bin" : variable;
  path += ":";
  for (size_t start = 0; start < path.size();) {
    const size_t end = path.find(':', start);
    const std::string candidate = JoinPath(path.substr(start, end - start), name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    start = end + 1;
  }
  return NotFoundError(name, " is not in PATH: apt-get install openmpi-bin");
}

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    return StrCat("was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)),
                  ")");
  }
  return WEXITSTATUS(status) == 127 ? "could not be started"
                                    : StrCat("ended with status ", WEXITSTATUS(status));
}

// The children, and what they write.
class Children {
 public:
  ~Children() {
    KillAll(SIGKILL);
    for (const pid_t pid : pids_) {
      if (pid > 0) waitpid(pid, nullptr, 0);
    }
    if (read_fd_ >= 0) close(read_fd_);
    if (write_fd_ >= 0) close(write_fd_);
  }

  Status OpenPipe() {
    std::array<int, 2> fds;
    if (pipe2(fds.data(), O_CLOEXEC) != 0) return InternalError("pipe: ", std::strerror(errno));
    read_fd_ = fds[0];
    write_fd_ = fds[1];
    return OkStatus();
  }
  int write_fd() const { return write_fd_; }
  void Add(pid_t pid) { pids_.push_back(pid); }
  bool alive() const {
    for (const pid_t pid : pids_) {
      if (pid > 0) return true;
    }
    return false;
  }

  // Takes what has ended; the first that failed is told in the result. `name` is "rank".
  void Reap(const char* name, LaunchResult* result) {
    for (size_t i = 0; i < pids_.size(); ++i) {
      int status = 0;
      if (pids_[i] <= 0 || waitpid(pids_[i], &status, WNOHANG) != pids_[i]) continue;
      pids_[i] = 0;
      if (status == 0 || !result->message.empty()) continue;
      result->message = pids_.size() > 1 ? StrCat(name, " ", i, " ", Describe(status))
                                         : StrCat(name, " ", Describe(status));
    }
  }

  void KillAll(int signal) {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(-pid, signal);
    }
  }

  // Waits up to `seconds` for output, and takes it. False when there is none.
  bool Read(double seconds, std::string* text) {
    if (read_fd_ < 0) {
      poll(nullptr, 0, static_cast<int>(seconds * 1e3));
      return false;
    }
    if (write_fd_ >= 0) {
      close(write_fd_);
      write_fd_ = -1;
    }
    pollfd ready = {.fd = read_fd_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, static_cast<int>(seconds * 1e3)) <= 0) return false;
    std::array<char, 65536> piece;
    const ssize_t length = read(read_fd_, piece.data(), piece.size());
    if (length > 0 && text->size() < kCaptureBytesMax) {
      text->append(piece.data(), static_cast<size_t>(length));
    }
    // The end of output: what is left is waiting for the end of the processes.
    if (length <= 0) poll(nullptr, 0, 1);
    return length > 0;
  }

 private:
  std::vector<pid_t> pids_;
  int read_fd_ = -1;
  int write_fd_ = -1;
};

Status StartAll(const LaunchOptions& options, Children* children) {
  std::map<std::string, std::string> environment = options.environment;
  CRIA_ASSIGN_OR_RETURN(const int port, FreePort());
  environment["MASTER_ADDR"] = "127.0.0.1";
  environment["MASTER_PORT"] = StrCat(port);
  // We may run inside an allocation of Slurm's, whose variables say other ranks.
  environment["CRIA_COMM_LAUNCHER"] = options.mpirun ? "openmpi" : "torchrun";
  if (options.capture) CRIA_RETURN_IF_ERROR(children->OpenPipe());
  std::vector<std::string> program = {SelfPath()};
  program.insert(program.end(), options.arguments.begin(), options.arguments.end());
  if (options.mpirun) {
    CRIA_ASSIGN_OR_RETURN(const std::string mpirun, FindProgram("mpirun"));
    // By its name alone: called by a path, mpirun looks for its own files beside it.
    std::vector<std::string> command = {"mpirun", "--allow-run-as-root", "--oversubscribe",
                                        "-n",     StrCat(options.ranks), "--quiet"};
    for (const auto& [name, value] : environment) {
      command.insert(command.end(), {"-x", name});
    }
    command.insert(command.end(), program.begin(), program.end());
    CRIA_ASSIGN_OR_RETURN(const pid_t pid,
                          Spawn(mpirun, command, environment, children->write_fd()));
    children->Add(pid);
    return OkStatus();
  }
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = StrCat(options.ranks);
  for (int r = 0; r < options.ranks; ++r) {
    environment["RANK"] = environment["LOCAL_RANK"] = StrCat(r);
    CRIA_ASSIGN_OR_RETURN(const pid_t pid,
                          Spawn(program[0], program, environment, children->write_fd()));
    children->Add(pid);
  }
  return OkStatus();
}

}  // namespace

StatusOr<LaunchResult> Launch(const LaunchOptions& options) {
  constexpr double kSliceSeconds = 0.005;
  LaunchResult result;
  const SignalGuard guard;
  Children children;
  CRIA_RETURN_IF_ERROR(StartAll(options, &children));
  const char* const name = options.mpirun ? "mpirun" : "rank";
  const double start_s = RealClock()->MonotonicSeconds();
  double failed_s = 0;
  while (children.alive()) {
    children.Read(kSliceSeconds, &result.text);
    children.Reap(name, &result);
    const double now_s = RealClock()->MonotonicSeconds();
    if (!result.message.empty() && failed_s == 0) failed_s = now_s;
    if (failed_s > 0 && now_s > failed_s + options.grace_s) break;
    if (interrupted != 0) {
      result.message = StrCat("stopped by signal ", static_cast<int>(interrupted));
      break;
    }
    if (options.limit_s > 0 && now_s > start_s + options.limit_s) {
      result.timed_out = true;
      if (result.message.empty()) {
        result.message = StrCat("not done after ", options.limit_s, " s");
      }
      break;
    }
  }
  if (children.alive() && options.mpirun) {
    // mpirun ends its ranks when it is asked to.
    children.KillAll(SIGTERM);
    const double end_s = RealClock()->MonotonicSeconds() + 3;
    LaunchResult ignored = {.message = "ended"};
    while (children.alive() && RealClock()->MonotonicSeconds() < end_s) {
      children.Read(kSliceSeconds, &result.text);
      children.Reap(name, &ignored);
    }
  }
  // What was written last.
  while (children.Read(0, &result.text)) {
  }
  result.ok = result.message.empty();
  return result;
}

StatusOr<RankIdentity> PrepareRank() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CRIA_ASSIGN_OR_RETURN(const RankEnvironment environment,
                        ReadRankEnvironment(ProcessEnvironment()));
  return RankIdentity{.rank = environment.rank, .size = environment.world_size};
}

StatusOr<ScratchFolder> ScratchFolder::Create() {
  const char* const base = std::getenv("TMPDIR");
  std::string path = JoinPath(base == nullptr ? "/tmp" : base, "cria-comm-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return InternalError("make a folder ", path, ": ", std::strerror(errno));
  }
  return ScratchFolder(path);
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")) {}

ScratchFolder::~ScratchFolder() {
  if (!path_.empty()) RemoveAll(path_).IgnoreError();
}

}  // namespace cria::comm
