// A child process for tests: started with its own environment, its output in files, every wait with
// a deadline.
//
//   Process train({"trainer/train", "--steps", "5"}, {.dir = FreshDir("run")});
//   ASSERT_TRUE(WaitUntil([&] { return Exists(path) || train.ended(); }));
//   train.Signal(SIGINT);
//   const Ended ended = train.Wait();
//   EXPECT_EQ(ended.exit_code, 0) << ended.err;
//
// Single-threaded. A process that is still running is killed by the destructor.

#ifndef CRIA_TESTS_SUPPORT_PROCESS_H_
#define CRIA_TESTS_SUPPORT_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace cria {

// Far beyond what anything here takes: only a hang reaches it.
inline constexpr double kDeadlineSeconds = 120;

// Checks `condition` about every millisecond; false when the deadline passes first.
bool WaitUntil(const std::function<bool()>& condition, double deadline_seconds = kDeadlineSeconds);

// A new, empty folder under TEST_TMPDIR.
std::string FreshDir(const std::string& name);

struct Ended {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;
  bool timed_out = false;  // killed at the deadline
  std::string out, err;
};

struct ProcessOptions {
  std::vector<std::pair<std::string, std::string>> env;  // over ours
};

class Process {
 public:
  // args[0] is the program's path.
  explicit Process(const std::vector<std::string>& args, const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal_number) const;
  // It has ended (and may still be waited for).
  bool ended();
  // What it has written so far.
  std::string err() const;
  Ended Wait(double deadline_seconds = kDeadlineSeconds);

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
  int status_ = 0;
  std::string out_path_, err_path_;
};

// Start and Wait.
Ended RunProcess(const std::vector<std::string>& args, const ProcessOptions& options = {});

}  // namespace cria

#endif  // CRIA_TESTS_SUPPORT_PROCESS_H_
