// What the master knows of one job: who has come, at which place of the tree, whose records are
// there. No sockets: the server (rendezvous_server.h) moves the messages.
//
// Thread-compatible. Errors name ranks by number, address and process.

#ifndef CRIA_COMM_RENDEZVOUS_RENDEZVOUS_SESSION_H_
#define CRIA_COMM_RENDEZVOUS_RENDEZVOUS_SESSION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "comm/engine/rank_map.h"
#include "comm/rendezvous/messages.h"
#include "comm/rendezvous/tree.h"

namespace cria::comm {

class RendezvousSession {
 public:
  // `id` tells this run of the master from an earlier one.
  RendezvousSession(uint64_t id, int world_size, int degree);

  // Gives a rank its place; the same one when the same process comes again. `seen_address` is where
  // its connection comes from. InvalidArgument: another world size, a number that another process
  // has.
  StatusOr<Place> Register(const Hello& hello, const std::string& seen_address);

  // Takes records that came up the tree. DataLoss or InvalidArgument when they contradict what is
  // known.
  Status Add(std::string_view records_payload);

  bool complete() const { return num_records_ == shape_.num_ranks; }
  // The encoded map, when complete.
  std::string EncodedMap() const;

  // DeadlineExceeded: who has not come, and who came and then went silent.
  Status TimeoutError(double waited_s) const;

  // "rank 3 (10.0.0.2, process 77)", as far as it is known.
  std::string Describe(int rank) const;
  int RankAt(int position) const { return rank_at_[static_cast<size_t>(position)]; }
  uint64_t id() const { return id_; }
  const TreeShape& shape() const { return shape_; }

 private:
  struct Seat {
    int position = 0;  // 0: has not come
    uint64_t instance = 0;
    std::string address = {};
    int port = 0;
    int64_t pid = 0;
    bool has_record = false;
  };

  Place PlaceOf(int position) const;
  // "3 ranks ...: 5, 17, 42", at most a few of them.
  std::string List(const std::vector<int>& ranks, bool describe) const;

  const uint64_t id_;
  const TreeShape shape_;
  std::vector<Seat> seats_;   // by rank
  std::vector<int> rank_at_;  // by position; [0] is nobody
  RankMap map_;
  int num_records_ = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_RENDEZVOUS_SESSION_H_
