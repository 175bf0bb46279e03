// The bound that a benchmark of the TCP transport is held against: as many bytes in as many
// directions over plain sockets, nothing else. Only tcp_bench uses it.

#ifndef CRIA_COMM_TCP_RAW_STREAM_H_
#define CRIA_COMM_TCP_RAW_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/net/fd.h"

namespace cria::comm {

class RawStreams {
 public:
  // A ring: each rank sends to the next and receives from the one before (two ranks: one
  // connection, both ways). `ports` is shared by the ranks, `barrier` is of all of them.
  static StatusOr<std::unique_ptr<RawStreams>> Open(int size, int rank, int* ports,
                                                    const std::function<void()>& barrier);
  // Sends `bytes` and receives as many.
  Status Move(int64_t bytes);

 private:
  Fd next_, previous_;
  int next_fd_ = -1, previous_fd_ = -1;
  std::vector<std::byte> out_, in_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_TCP_RAW_STREAM_H_
