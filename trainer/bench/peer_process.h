// A Python program beside us that does the same work with another library, for comparison.
//
//   CRIA_ASSIGN_OR_RETURN(const std::string script, FindPeerScript("train_peer.py"));
//   CRIA_ASSIGN_OR_RETURN(auto peer, PeerProcess::Start("/opt/torch/bin/python", script, 120));
//   CRIA_ASSIGN_OR_RETURN(const std::string answer, peer->Ask("run eager fp32 2", 60));
//
// Protocol: the program writes "ready <what it is>" when it has started, then one line for each
// line that it gets; "error <text>" is an answer too. What it writes to standard error is kept for
// messages. Every wait has a deadline; a program that misses one, or dies, is killed with its
// process group and answers no more. Single-threaded.

#ifndef CRIA_TRAINER_BENCH_PEER_PROCESS_H_
#define CRIA_TRAINER_BENCH_PEER_PROCESS_H_

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/status.h"

namespace cria::trainer {

// The path of tools/peers/<name> in the runfiles of this program. NotFound when it was built
// without.
StatusOr<std::string> FindPeerScript(const std::string& name);

class PeerProcess {
 public:
  // Runs `python script` (python as a path, or a name in PATH) and waits for its greeting.
  // NotFound: no such interpreter; FailedPrecondition: it started but answers an error, such as a
  // missing package; DeadlineExceeded; Unavailable: it died.
  static StatusOr<std::unique_ptr<PeerProcess>> Start(const std::string& python,
                                                      const std::string& script, double deadline_s);
  // Kills the program.
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  // What came after "ready ": "torch 2.1.0".
  const std::string& greeting() const { return greeting_; }

  // The answer to one line (without its newline). Internal: the answer is an error, and the program
  // lives; DeadlineExceeded or Unavailable: it is gone.
  StatusOr<std::string> Ask(const std::string& line, double deadline_s);

 private:
  PeerProcess() = default;

  Status Spawn(const std::string& python, const std::string& script);
  Status Send(std::string text);
  StatusOr<std::string> ReadLine(double deadline_s);
  // "; it said: <last line of its standard error>", or nothing.
  std::string LastWords() const;
  void Kill();

  std::string name_;  // "python script", for messages
  std::string greeting_;
  pid_t pid_ = -1;
  int socket_ = -1;
  std::FILE* errors_ = nullptr;
  std::string pending_;  // read, but not yet a whole line
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_PEER_PROCESS_H_
