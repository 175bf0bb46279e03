// Ranks as threads of the test, each with the real call.

#ifndef CRIA_TESTS_UNIT_COMM_RENDEZVOUS_JOB_H_
#define CRIA_TESTS_UNIT_COMM_RENDEZVOUS_JOB_H_

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/rendezvous/rendezvous.h"

namespace cria::comm {

// A record that differs between ranks in each field.
RankInfo RecordOf(int rank);

// The environment of one rank of a job on this machine.
RankEnvironment EnvironmentOf(int rank, int world_size, int port);

// A port of 127.0.0.1 that was free a moment ago.
int FreePort();

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

// Fails the test unless each outcome is the map of all RecordOf.
void ExpectAllHaveTheMap(const std::vector<StatusOr<RankMap>>& outcomes);

}  // namespace cria::comm

#endif  // CRIA_TESTS_UNIT_COMM_RENDEZVOUS_JOB_H_
