// The store of the naive scheme: one thread, keys and values, a reply for each request, as
// torch.distributed's TCPStore and others work. Kept as cheap as such a thing can be: keys are
// numbers, a request has 16 bytes and a reply 8.
//
//   set key value   stores                           reply: value
//   get key         waits until the key is set       reply: value
//   add key         counts one more                  reply: the count
//   wait key value  waits until the count is value   reply: value
//
// Thread-compatible: lives on its loop's thread.

#ifndef CRIA_COMM_BENCH_INIT_STORE_SERVER_H_
#define CRIA_COMM_BENCH_INIT_STORE_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "comm/net/fd.h"
#include "comm/rendezvous/event_loop.h"

namespace cria::comm {

enum class StoreOp : uint32_t { kSet, kGet, kAdd, kWait };

struct StoreRequest {
  StoreOp op = StoreOp::kSet;
  uint32_t key = 0;
  uint64_t value = 0;
};
static_assert(sizeof(StoreRequest) == 16);

class StoreServer : public EventHandler {
 public:
  static StatusOr<std::unique_ptr<StoreServer>> Create(EventLoop* loop);
  ~StoreServer() override;

  int port() const { return port_; }
  int64_t messages() const { return messages_; }

  void OnEvents(uint32_t events) override;

 private:
  class Client;

  explicit StoreServer(EventLoop* loop);
  void Serve(Client* client, const StoreRequest& request);
  void Change(uint32_t key, uint64_t value);

  EventLoop* const loop_;
  Fd listener_;
  EventLoop::WatchId watch_;
  int port_ = 0;
  int64_t messages_ = 0;
  std::vector<std::unique_ptr<Client>> clients_;
  std::unordered_map<uint32_t, uint64_t> values_;
  // By key: (value to reach, who waits).
  std::unordered_map<uint32_t, std::vector<std::pair<uint64_t, Client*>>> waiting_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_INIT_STORE_SERVER_H_
