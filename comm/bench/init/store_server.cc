#include "comm/bench/init/store_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstring>

#include "comm/net/address.h"
#include "comm/net/socket.h"

namespace cria::comm {
namespace {

constexpr int kBacklog = 4096;

}  // namespace

class StoreServer::Client : public EventHandler {
 public:
  Client(StoreServer* server, Fd fd) : server_(server), fd_(std::move(fd)) {}
  ~Client() override { server_->loop_->Unwatch(watch_, fd_.get()); }

  Status Watch() {
    CRIA_ASSIGN_OR_RETURN(watch_, server_->loop_->Watch(fd_.get(), EPOLLIN, this));
    return OkStatus();
  }
  // One request at a time: a client that asks waits for the reply.
  void OnEvents(uint32_t) override {
    StoreRequest request;
    const ssize_t got = recv(fd_.get(), &request, sizeof(request), MSG_DONTWAIT);
    if (got == static_cast<ssize_t>(sizeof(request))) return server_->Serve(this, request);
    if (got < 0) return;
    server_->loop_->Unwatch(watch_, fd_.get());  // gone
    watch_ = {};
  }
  void Reply(uint64_t value) {
    ++server_->messages_;
    // Eight bytes fit; a client that is gone needs none.
    static_cast<void>(send(fd_.get(), &value, sizeof(value), MSG_NOSIGNAL | MSG_DONTWAIT));
  }

 private:
  StoreServer* const server_;
  Fd fd_;
  EventLoop::WatchId watch_;
};

StatusOr<std::unique_ptr<StoreServer>> StoreServer::Create(EventLoop* loop) {
  std::unique_ptr<StoreServer> server(new StoreServer(loop));
  CRIA_ASSIGN_OR_RETURN(const SocketAddress address, ParseAddress("127.0.0.1", 0));
  CRIA_ASSIGN_OR_RETURN(server->listener_, Listen(address, kBacklog));
  CRIA_ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(server->listener_.get()));
  server->port_ = bound.port();
  CRIA_ASSIGN_OR_RETURN(server->watch_,
                        loop->Watch(server->listener_.get(), EPOLLIN, server.get()));
  return server;
}

StoreServer::StoreServer(EventLoop* loop) : loop_(loop) {}

StoreServer::~StoreServer() {
  clients_.clear();
  loop_->Unwatch(watch_, listener_.get());
}

void StoreServer::OnEvents(uint32_t) {
  for (;;) {
    auto fd = TryAccept(listener_.get());
    if (!fd.ok() || !fd->valid()) return;
    clients_.push_back(std::make_unique<Client>(this, *std::move(fd)));
    if (!clients_.back()->Watch().ok()) clients_.pop_back();
  }
}

void StoreServer::Serve(Client* client, const StoreRequest& request) {
  const auto found = values_.find(request.key);
  switch (request.op) {
    case StoreOp::kSet:
      Change(request.key, request.value);
      return client->Reply(request.value);
    case StoreOp::kAdd: {
      const uint64_t count = found == values_.end() ? 1 : found->second + 1;
      Change(request.key, count);
      return client->Reply(count);
    }
    case StoreOp::kGet:
    case StoreOp::kWait: {
      const uint64_t least = request.op == StoreOp::kGet ? 0 : request.value;
      if (found != values_.end() && found->second >= least) return client->Reply(found->second);
      waiting_[request.key].emplace_back(least, client);
      return;
    }
  }
}

void StoreServer::Change(uint32_t key, uint64_t value) {
  values_[key] = value;
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  std::erase_if(found->second, [value](const auto& waiter) {
    if (value < waiter.first) return false;
    waiter.second->Reply(value);
    return true;
  });
}

}  // namespace cria::comm
