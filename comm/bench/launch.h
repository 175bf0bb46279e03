// Starts the ranks of a job on this machine as processes, each this program again, and waits for
// their end: directly, with torchrun's environment, or under mpirun.
//
//   CRIA_ASSIGN_OR_RETURN(LaunchResult result, Launch({.ranks = 4, .arguments = {"bench", ...}}));
//   if (!result.ok) ...result.message...
//
// Ranks never outlive the launcher: they ask the kernel for SIGKILL at its death (PrepareRank), and
// at the time limit or at the first rank that fails the others are killed. Their standard error,
// and rank 0's output under mpirun as elsewhere, goes to ours unless it is captured.
// Single-threaded.

#ifndef CRIA_COMM_BENCH_LAUNCH_H_
#define CRIA_COMM_BENCH_LAUNCH_H_

#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace cria::comm {

struct LaunchOptions {
  int ranks = 2;
  bool mpirun = false;
  std::vector<std::string> arguments = {};              // of this program
  std::map<std::string, std::string> environment = {};  // over ours
  double limit_s = 0;                                   // 0: none
  // How long the others may go on once a rank has failed; they may have something to say about it.
  double grace_s = 5;
  bool capture = false;  // output and errors into LaunchResult::text
};

struct LaunchResult {
  bool ok = false;           // all ranks ended with status 0
  bool timed_out = false;    // the limit passed
  std::string message = {};  // why not: "rank 1 was killed by signal 9"
  std::string text = {};     // captured
};

// Internal when a process cannot be started; NotFound without mpirun.
StatusOr<LaunchResult> Launch(const LaunchOptions& options);

// Called by a rank process first. Its rank, from the launcher's environment
// (rendezvous/rank_environment.h).
struct RankIdentity {
  int rank = 0;
  int size = 1;
};
StatusOr<RankIdentity> PrepareRank();

// A folder for the ranks' files under TMPDIR (or /tmp), removed with this object.
class ScratchFolder {
 public:
  static StatusOr<ScratchFolder> Create();
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_LAUNCH_H_
