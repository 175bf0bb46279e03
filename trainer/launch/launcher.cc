#include "trainer/launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "comm/net/fd.h"
#include "trainer/launch/rank_output.h"
#include "trainer/launch/rank_process.h"

namespace cria::trainer {
namespace {

using comm::Fd;

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kLastLines = 10;
// How long a rank's failure waits for a killed rank that may be its cause.
constexpr double kCauseSeconds = 0.3;
// Two of the same signal within this are one.
constexpr double kSecondSignalSeconds = 0.1;
// More cannot stand in a pipe; what comes after it is from a process that a rank left behind.
constexpr size_t kDrainBytesMax = size_t{2} << 20;

int AllowedCores() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

// While it lives, the signals that we heed come from a descriptor, and writing to a reader that is
// gone is an error instead of our end.
class SignalSource {
 public:
  SignalSource() {
    sigset_t heeded;
    sigemptyset(&heeded);
    for (const int number : {SIGCHLD, SIGTSTP, SIGCONT}) sigaddset(&heeded, number);
    for (const int number : kStopSignals) {
      struct sigaction action = {};
      sigaction(number, nullptr, &action);
      // nohup, or a job of a shell without job control.
      if (action.sa_handler != SIG_IGN) sigaddset(&heeded, number);
    }
    sigprocmask(SIG_BLOCK, &heeded, &old_mask_);
    struct sigaction action = {};
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, &old_pipe_);
    // Ignored, children would be gone before we can ask what became of them.
    action.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &action, &old_child_);
    fd_ = Fd(signalfd(-1, &heeded, SFD_NONBLOCK | SFD_CLOEXEC));
  }
  ~SignalSource() {
    sigaction(SIGCHLD, &old_child_, nullptr);
    sigaction(SIGPIPE, &old_pipe_, nullptr);
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }
  SignalSource(const SignalSource&) = delete;
  SignalSource& operator=(const SignalSource&) = delete;

  int fd() const { return fd_.get(); }
  const sigset_t& old_mask() const { return old_mask_; }
  // The next signal that came; 0 for none.
  int Next() const {
    signalfd_siginfo info;
    return read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  sigset_t old_mask_;
  struct sigaction old_pipe_ = {};
  struct sigaction old_child_ = {};
  Fd fd_;
};

// What one of a rank's two streams has to say, through a pipe.
struct Stream {
  Fd fd = {};
  LinePrefixer prefixer = LinePrefixer("");
  bool is_error = false;
};

struct Rank {
  int number = 0;  // in the job
  pid_t pid = -1;  // -1 once it has ended
  std::vector<Stream> streams = {};
  std::string err_path = {};  // its standard error, where that is a file
  StreamEnd err_end = {};     // where it is a pipe

  std::string Name() const { return StrCat("rank ", number, " (pid ", pid, ")"); }
};

class Job {
 public:
  Job(const LaunchOptions& options, const SignalSource& signals)
      : options_(options), signals_(signals), queue_(STDERR_FILENO) {}
  ~Job() {
    SignalAll(SIGKILL);
    for (Rank& rank : ranks_) {
      if (rank.pid > 0) waitpid(rank.pid, nullptr, 0);
    }
  }

  // After a rank that could not be started, Run says why.
  Status Start();
  LaunchResult Run();

 private:
  StatusOr<Fd> Pipe(Rank* rank, bool is_error);
  StatusOr<Fd> LogFile(const Rank& rank, const char* suffix) const;
  Status OpenOutput(Rank* rank, Fd* out, Fd* err);
  Status StartRank(int local_rank, const comm::EnvironmentVariables& ours, int cores);

  void WaitForEvents();
  void HandleSignals();
  void HandleStopSignal(int number);
  void StandStill();
  void ReadStreams();
  // False at the end of the stream, or when nothing is there.
  bool ReadStream(Rank* rank, Stream* stream);
  // By number, each with its end.
  std::vector<std::pair<Rank*, siginfo_t>> FindEnded();
  void Reap();
  void Finish(Rank* rank, const siginfo_t& end);
  void BlameRank(const Rank& rank, const siginfo_t& end);
  void EndOthers();
  void KillAtEndOfGrace();

  void SignalAll(int number) const;
  int NumRunning() const;
  std::string LastWords(const Rank& rank) const;
  void Say(const std::string& line) { queue_.Append(StrCat("cria launch: ", line, "\n")); }
  double Now() const { return RealClock()->MonotonicSeconds(); }

  const LaunchOptions options_;
  const SignalSource& signals_;
  OutputQueue queue_;
  std::vector<Rank> ranks_;
  int stop_signal_ = 0;  // the first that came
  double stop_signal_s_ = 0;
  bool killed_ = false;
  std::optional<double> kill_at_s_;
  LaunchResult result_;
};

StatusOr<Fd> Job::Pipe(Rank* rank, bool is_error) {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return ErrnoError(errno, StrCat("a pipe for rank ", rank->number));
  }
  Fd read_end(ends[0]), write_end(ends[1]);
  // Of our end alone: the two share no flags.
  fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  std::string prefix = rank->number == 0 ? "" : StrCat("[rank ", rank->number, "] ");
  // There, a progress line of rank 0 may stand; it is drawn again.
  if (isatty(STDERR_FILENO) == 1) prefix.insert(0, "\r\x1b[K");
  rank->streams.push_back({std::move(read_end), LinePrefixer(prefix), is_error});
  return write_end;
}

StatusOr<Fd> Job::LogFile(const Rank& rank, const char* suffix) const {
  const std::string path = JoinPath(options_.log_dir, StrCat("rank_", rank.number, suffix));
  Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoError(errno, StrCat("open ", path));
  return fd;
}

Status Job::OpenOutput(Rank* rank, Fd* out, Fd* err) {
  if (rank->number == 0) {
    // A terminal stays one, for progress lines; elsewhere we listen, to know its last words.
    if (isatty(STDERR_FILENO) == 1) return OkStatus();
    CRIA_ASSIGN_OR_RETURN(*err, Pipe(rank, true));
    return OkStatus();
  }
  if (options_.log_dir.empty()) {
    CRIA_ASSIGN_OR_RETURN(*out, Pipe(rank, false));
    CRIA_ASSIGN_OR_RETURN(*err, Pipe(rank, true));
    return OkStatus();
  }
  CRIA_ASSIGN_OR_RETURN(*out, LogFile(*rank, ".out"));
  CRIA_ASSIGN_OR_RETURN(*err, LogFile(*rank, ".err"));
  rank->err_path = JoinPath(options_.log_dir, StrCat("rank_", rank->number, ".err"));
  return OkStatus();
}

Status Job::StartRank(int local_rank, const comm::EnvironmentVariables& ours, int cores) {
  Rank rank = {.number = options_.node_rank * options_.ranks + local_rank};
  Fd out, err;
  CRIA_RETURN_IF_ERROR(OpenOutput(&rank, &out, &err));
  CRIA_ASSIGN_OR_RETURN(
      const SpawnOutcome outcome,
      SpawnRank({.command = options_.command,
                 .environment = EnvironmentOfRank(options_, local_rank, cores, ours),
                 .out = out.get(),
                 .err = err.get(),
                 .signal_mask = signals_.old_mask()}));
  if (outcome.exec_errno != 0) {
    const Status why =
        ErrnoError(outcome.exec_errno, StrCat("cannot run ", options_.command.front()));
    result_ = {.exit_code = outcome.exec_errno == ENOENT ? 127 : 126,
               .culprit = rank.number,
               .message = Message(why)};
    return OkStatus();
  }
  rank.pid = outcome.pid;
  ranks_.push_back(std::move(rank));
  return OkStatus();
}

Status Job::Start() {
  if (!options_.log_dir.empty()) CRIA_RETURN_IF_ERROR(MakeDirs(options_.log_dir));
  const comm::EnvironmentVariables ours = comm::ProcessEnvironment();
  const int cores = AllowedCores();
  ranks_.reserve(static_cast<size_t>(options_.ranks));
  for (int i = 0; i < options_.ranks && result_.exit_code == 0; ++i) {
    CRIA_RETURN_IF_ERROR(StartRank(i, ours, cores));
  }
  return OkStatus();
}

LaunchResult Job::Run() {
  if (result_.exit_code != 0) return result_;
  while (NumRunning() > 0 || (!queue_.empty() && !killed_)) {
    WaitForEvents();
    HandleSignals();
    ReadStreams();
    Reap();
    KillAtEndOfGrace();
  }
  // After a second signal nobody waits for a slow reader.
  pollfd ready = {.fd = queue_.fd(), .events = POLLOUT, .revents = 0};
  while (!queue_.empty() && poll(&ready, 1, 0) == 1) queue_.WriteSome();
  return result_;
}

void Job::WaitForEvents() {
  std::vector<pollfd> fds = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
  fds.push_back({.fd = queue_.empty() ? -1 : queue_.fd(), .events = POLLOUT, .revents = 0});
  for (const Rank& rank : ranks_) {
    for (const Stream& stream : rank.streams) {
      const bool listen = stream.fd.valid() && !queue_.full();
      fds.push_back({.fd = listen ? stream.fd.get() : -1, .events = POLLIN, .revents = 0});
    }
  }
  int timeout_ms = -1;
  if (kill_at_s_) {
    timeout_ms = static_cast<int>(std::clamp((*kill_at_s_ - Now()) * 1e3 + 1, 0.0, 1e6));
  }
  poll(fds.data(), fds.size(), timeout_ms);
  if (fds[1].revents != 0) queue_.WriteSome();
}

void Job::HandleSignals() {
  for (int number = signals_.Next(); number != 0; number = signals_.Next()) {
    if (number == SIGCHLD) continue;  // Reap looks each time
    if (number == SIGTSTP) {
      StandStill();
    } else if (number == SIGCONT) {
      SignalAll(SIGCONT);
    } else {
      HandleStopSignal(number);
    }
  }
}

void Job::HandleStopSignal(int number) {
  if (stop_signal_ == 0 && NumRunning() > 0) {
    stop_signal_ = number;
    stop_signal_s_ = Now();
    SignalAll(number);
    return;
  }
  if (NumRunning() > 0 && Now() - stop_signal_s_ < kSecondSignalSeconds) return;
  if (NumRunning() > 0 && result_.exit_code == 0) {
    result_.exit_code = 128 + number;
    result_.message = StrCat("killed all ranks at the second signal, ", SignalName(number));
  }
  killed_ = true;
  kill_at_s_.reset();
  SignalAll(SIGKILL);
}

void Job::StandStill() {
  SignalAll(SIGTSTP);
  // Goes on here when somebody continues us; SIGCONT then also comes as a signal to read.
  raise(SIGSTOP);
}

void Job::ReadStreams() {
  for (Rank& rank : ranks_) {
    for (Stream& stream : rank.streams) {
      if (!queue_.full()) ReadStream(&rank, &stream);
    }
  }
}

bool Job::ReadStream(Rank* rank, Stream* stream) {
  if (!stream->fd.valid()) return false;
  std::array<char, size_t{64} << 10> bytes;
  const ssize_t length = read(stream->fd.get(), bytes.data(), bytes.size());
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (length <= 0) {
    stream->fd.Reset();
    return false;
  }
  const std::string_view text(bytes.data(), static_cast<size_t>(length));
  if (stream->is_error) rank->err_end.Add(text);
  queue_.Append(stream->prefixer.Add(text));
  return true;
}

std::vector<std::pair<Rank*, siginfo_t>> Job::FindEnded() {
  std::vector<std::pair<Rank*, siginfo_t>> ended;
  for (Rank& rank : ranks_) {
    if (rank.pid < 0) continue;
    siginfo_t end = {};
    // Not yet taken: its number is its group's, which nobody else may get before we killed that.
    const int got = waitid(P_PID, static_cast<id_t>(rank.pid), &end, WEXITED | WNOHANG | WNOWAIT);
    if (got == 0 && end.si_pid == rank.pid) ended.emplace_back(&rank, end);
  }
  return ended;
}

// Some failed, none of them by a signal.
bool FailedByThemselves(const std::vector<std::pair<Rank*, siginfo_t>>& ended) {
  bool failed = false;
  for (const auto& [rank, end] : ended) {
    if (end.si_code != CLD_EXITED) return false;
    failed = failed || end.si_status != 0;
  }
  return failed;
}

void Job::Reap() {
  auto ended = FindEnded();
  if (ended.empty()) return;
  // The cause may end after what it caused: a killed process gives its memory back first.
  const double end_s = Now() + kCauseSeconds;
  while (result_.exit_code == 0 && NumRunning() > static_cast<int>(ended.size()) &&
         FailedByThemselves(ended) && Now() < end_s) {
    poll(nullptr, 0, /*timeout=*/5);
    ended = FindEnded();
  }
  // A rank whose peer was killed may end before we look: the killed one is the cause.
  std::stable_partition(ended.begin(), ended.end(),
                        [](const auto& e) { return e.second.si_code != CLD_EXITED; });
  for (auto& [rank, end] : ended) Finish(rank, end);
}

void Job::Finish(Rank* rank, const siginfo_t& end) {
  kill(-rank->pid, SIGKILL);
  for (Stream& stream : rank->streams) {
    for (size_t bytes = 0; bytes < kDrainBytesMax && ReadStream(rank, &stream);) {
      bytes += size_t{64} << 10;
    }
    queue_.Append(stream.prefixer.Finish());
    stream.fd.Reset();
  }
  if (ShellCode(end) != 0 && result_.exit_code == 0) BlameRank(*rank, end);
  const bool ends_others = result_.culprit == rank->number;
  waitpid(rank->pid, nullptr, 0);
  rank->pid = -1;
  if (ends_others) EndOthers();
}

void Job::BlameRank(const Rank& rank, const siginfo_t& end) {
  const bool as_told = end.si_code != CLD_EXITED && end.si_status == stop_signal_;
  const std::string what =
      StrCat(rank.Name(), " ", DescribeEnd(end), as_told ? ", which was sent to all ranks" : "");
  if (NumRunning() > 1) Say(StrCat(what, "; ending the other ranks"));
  result_ = {
      .exit_code = ShellCode(end), .culprit = rank.number, .message = what + LastWords(rank)};
}

void Job::EndOthers() {
  if (NumRunning() == 0) return;
  for (const Rank& rank : ranks_) {
    siginfo_t stop = {};
    if (rank.pid > 0 &&
        waitid(P_PID, static_cast<id_t>(rank.pid), &stop, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
        stop.si_pid == rank.pid) {
      result_.message +=
          StrCat("\n", rank.Name(), " had been stopped by ", SignalName(stop.si_status));
    }
  }
  SignalAll(SIGTERM);
  SignalAll(SIGCONT);  // what stands still heeds nothing
  kill_at_s_ = Now() + options_.grace_s;
}

void Job::KillAtEndOfGrace() {
  if (!kill_at_s_ || Now() < *kill_at_s_) return;
  kill_at_s_.reset();
  for (const Rank& rank : ranks_) {
    if (rank.pid < 0) continue;
    Say(StrCat(rank.Name(), " did not end within ", options_.grace_s, " s of SIGTERM: killed"));
  }
  SignalAll(SIGKILL);
}

void Job::SignalAll(int number) const {
  for (const Rank& rank : ranks_) {
    if (rank.pid > 0) kill(-rank.pid, number);
  }
}

int Job::NumRunning() const {
  return static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.pid > 0; }));
}

std::string Job::LastWords(const Rank& rank) const {
  std::string text(rank.err_end.text());
  if (!rank.err_path.empty()) {
    StreamEnd file_end;
    if (auto file = MappedFile::Open(rank.err_path); file.ok()) file_end.Add(file->bytes());
    text = file_end.text();
  }
  const std::string lines = LastLines(text, kLastLines);
  if (lines.empty()) return "";
  std::string out = rank.err_path.empty() ? "; its last lines:\n"
                                          : StrCat("; the last lines of ", rank.err_path, ":\n");
  LinePrefixer indent("    ");
  out += indent.Add(lines);
  out += indent.Finish();
  out.pop_back();
  return out;
}

}  // namespace

StatusOr<LaunchResult> Launch(const LaunchOptions& options) {
  CRIA_ASSIGN_OR_RETURN(const LaunchOptions resolved, ResolveLaunch(options));
  const SignalSource signals;
  if (signals.fd() < 0) return InternalError("no signalfd");
  Job job(resolved, signals);
  CRIA_RETURN_IF_ERROR(job.Start());
  return job.Run();
}

}  // namespace cria::trainer
