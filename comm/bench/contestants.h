// What is measured against each other in one rank process: libraries, and for ours each kind of
// buffer. All are joined before the first is timed. Thread-compatible.

#ifndef CRIA_COMM_BENCH_CONTESTANTS_H_
#define CRIA_COMM_BENCH_CONTESTANTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "comm/bench/bench_options.h"
#include "comm/bench/join.h"

namespace cria::comm {

struct Contestant {
  std::string impl;
  std::string buffers;
  Communicator* comm = nullptr;  // the world, or the group of --split
  std::byte* input = nullptr;
  std::byte* output = nullptr;  // both of Contestants::buffer_bytes
  int num_all_reduces = 0;
  std::function<std::string(int)> choose_all_reduce = {};
};

class Contestants {
 public:
  static StatusOr<std::unique_ptr<Contestants>> Join(const BenchOptions& options,
                                                     const RankIdentity& identity,
                                                     const std::string& folder);

  const std::vector<Contestant>& all() const { return all_; }
  // Of this rank in the measured group, the same in all libraries.
  int rank() const { return all_[0].comm->rank(); }
  int size() const { return all_[0].comm->size(); }

 private:
  Contestants() = default;
  Status Add(const BenchOptions& options, const JoinRequest& request);
  Status AddBuffers(Contestant* contestant);

  int64_t buffer_bytes_ = 0;
  // Freed in the opposite order: buffers, groups, worlds.
  std::vector<Joined> worlds_;
  std::vector<std::unique_ptr<Communicator>> groups_;
  std::vector<std::unique_ptr<SharedBuffer>> segment_;
  std::vector<std::byte> private_memory_[2];
  std::vector<Contestant> all_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_CONTESTANTS_H_
