// Ranks as threads of the test, each with the real call.

#ifndef CRIA_TESTS_UNIT_COMM_RENDEZVOUS_JOB_H_
#define CRIA_TESTS_UNIT_COMM_RENDEZVOUS_JOB_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/rendezvous/event_loop.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/rendezvous_server.h"

namespace cria::comm {

// A record that differs between ranks in each field.
RankInfo RecordOf(int rank);

// The environment of one rank of a job on this machine.
RankEnvironment EnvironmentOf(int rank, int world_size, int port);

struct JobOptions {
  int world_size = 2;
  RendezvousOptions rendezvous = {.timeout_s = 60};
  int port = 0;  // 0: FreePort()
  // Before a rank starts, on its thread; false: it never starts.
  std::function<bool(int rank)> before = {};
  // Changes what one rank is told.
  std::function<void(int rank, RankEnvironment*)> change = {};
};

// The outcomes by rank, when all are over. A rank that never started has NotFound.
std::vector<StatusOr<RankMap>> RunJob(const JobOptions& options);

// A number that threads wait for.
class Tally {
 public:
  void Add() CRIA_EXCLUDES(mu_);
  // Waits until it is at least `count`; false after a minute.
  bool WaitFor(int count) CRIA_EXCLUDES(mu_);
  // Lets this much time pass: for events that give no sign.
  void LetPass(double seconds) CRIA_EXCLUDES(mu_);

 private:
  Mutex mu_;
  CondVar changed_;
  int count_ CRIA_GUARDED_BY(mu_) = 0;
};

// A stand-alone master on a thread.
class MasterThread {
 public:
  explicit MasterThread(const RendezvousServerOptions& options);
  // As if it were killed: all its connections end.
  ~MasterThread();
  int port() const { return port_; }
  // Waits until it has sent this many messages.
  bool WaitForMessages(int64_t count);

 private:
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<RendezvousServer> server_;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> num_messages_{0};
  std::thread thread_;
};

// Fails the test unless each outcome is the map of all RecordOf.
void ExpectAllHaveTheMap(const std::vector<StatusOr<RankMap>>& outcomes);

}  // namespace cria::comm

#endif  // CRIA_TESTS_UNIT_COMM_RENDEZVOUS_JOB_H_
