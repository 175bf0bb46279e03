#include "comm/rendezvous/rendezvous.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "comm/net/address.h"
#include "comm/rendezvous/event_loop.h"
#include "comm/rendezvous/map_codec.h"
#include "comm/rendezvous/rendezvous_client.h"
#include "comm/rendezvous/rendezvous_server.h"

namespace cria::comm {
namespace {

// After the deadline, what the outcome may take to be passed on.
constexpr double kGraceSeconds = 10;
// Between rank 0's tries to get a port that another program holds.
constexpr double kPortLookSeconds = 0.25;

Status CheckArguments(const RankEnvironment& environment, const RankInfo& mine,
                      const RendezvousOptions& options) {
  if (environment.world_size < 1 || environment.world_size > kWorldSizeMax ||
      environment.rank < 0 || environment.rank >= environment.world_size) {
    return InvalidArgumentError("rendezvous: rank ", environment.rank, " of ",
                                environment.world_size, "; the most is ", kWorldSizeMax, " ranks");
  }
  if (environment.world_size > 1 &&
      (environment.master_port < 1 || environment.master_port > 65535)) {
    return InvalidArgumentError("rendezvous: master port ", environment.master_port,
                                "; it must be in [1, 65535]");
  }
  if (!(options.timeout_s > 0)) {
    return InvalidArgumentError("rendezvous: a timeout of ", options.timeout_s, " s");
  }
  return CheckRankInfo(mine);
}

// Rank 0's hold on the master's port: its server, or the reason why it has none.
class JobPort {
 public:
  JobPort(EventLoop* loop, const RankEnvironment& environment, const RendezvousOptions& options)
      : loop_(loop), environment_(environment), options_(options) {}

  // Serves, unless the port is taken; other errors are returned.
  Status Take() {
    next_look_s_ = loop_->now_s() + kPortLookSeconds;
    auto server = RendezvousServer::Create(loop_, {.port = environment_.master_port,
                                                   .degree = options_.degree,
                                                   .timeout_s = options_.timeout_s,
                                                   .one_job = true,
                                                   .job = environment_.job,
                                                   .world_size = environment_.world_size});
    taken_ = server.status();
    if (taken_.code() == StatusCode::kUnavailable) return OkStatus();
    if (server.ok()) server_ = *std::move(server);
    return taken_;
  }

  // The port is taken, and its holder has not answered `client` as a master: a stand-alone one does
  // so at once, a program that ends makes room, any other is an error before long.
  bool contested(const RendezvousClient& client) const {
    return !taken_.ok() && !client.placed() && !client.done();
  }
  // Called while it is contested.
  Status Look(const RendezvousClient& client) {
    const double now_s = loop_->now_s();
    if (now_s >= next_look_s_) CRIA_RETURN_IF_ERROR(Take());
    if (taken_.ok() || now_s < start_s_ + options_.stranger_s) return OkStatus();
    const Status& why = client.last_error();
    return Explain(FailedPreconditionError(
        "rendezvous: what listens there is not Cria's",
        why.ok() ? ": it took the connection and does not answer" : ": " + Message(why)));
  }
  double next_look_s() const { return next_look_s_; }

  // What rank 0 met at the port of another.
  Status Explain(const Status& status) const {
    if (taken_.ok()) return status;
    return Annotate(status, StrCat("rank 0 cannot serve: ", Message(taken_)));
  }
  // Nobody waits for the server.
  bool idle() const { return server_ == nullptr || server_->idle() || server_->done(); }
  bool serves() const { return server_ != nullptr; }

 private:
  EventLoop* const loop_;
  const RankEnvironment& environment_;
  const RendezvousOptions& options_;
  const double start_s_ = loop_->now_s();
  double next_look_s_ = 0;
  Status taken_ = OkStatus();
  std::unique_ptr<RendezvousServer> server_;
};

// Where rank 0 finds its own server: by loopback, when it need not learn its address on the way.
StatusOr<SocketAddress> MasterAddress(const RankEnvironment& environment, bool serves,
                                      const RankInfo& mine, double timeout_s) {
  if (serves && !mine.address.empty()) return ParseAddress("127.0.0.1", environment.master_port);
  return ResolveHost(environment.master_address, environment.master_port, timeout_s);
}

Status CheckOwnRecord(const RankEnvironment& environment, const RankInfo& mine,
                      const RankMap& map) {
  const RankInfo& got = map[static_cast<size_t>(environment.rank)];
  if (got.host == mine.host && got.address == mine.address && got.port == mine.port &&
      got.shm_socket == mine.shm_socket && got.pid == mine.pid) {
    return OkStatus();
  }
  return DataLossError("rendezvous: the map has another record for rank ", environment.rank,
                       ": process ", got.pid, " at ", got.address, ":", got.port);
}

}  // namespace

StatusOr<RankMap> GatherRankMap(const RankEnvironment& environment, const RankInfo& mine,
                                const RendezvousOptions& options) {
  CRIA_RETURN_IF_ERROR(CheckArguments(environment, mine, options));
  if (environment.world_size == 1) return RankMap{mine};
  const double deadline_s = RealClock()->MonotonicSeconds() + options.timeout_s;
  CRIA_ASSIGN_OR_RETURN(const auto loop, EventLoop::Create());
  JobPort port(loop.get(), environment, options);
  if (environment.rank == 0) CRIA_RETURN_IF_ERROR(port.Take());
  CRIA_ASSIGN_OR_RETURN(const SocketAddress master,
                        MasterAddress(environment, port.serves(), mine, options.timeout_s));
  RendezvousClient client(
      loop.get(), {.master = master,
                   .environment = environment,
                   .record = mine,
                   .timeout_s = std::max(1e-3, deadline_s - RealClock()->MonotonicSeconds()),
                   .master_restart_s = options.master_restart_s,
                   .stranger_s = options.stranger_s});
  client.Start();
  const double end_s = deadline_s + kGraceSeconds;
  while (!(client.done() && port.idle()) && loop->now_s() < end_s) {
    const bool contested = port.contested(client);
    if (contested) CRIA_RETURN_IF_ERROR(port.Look(client));
    CRIA_RETURN_IF_ERROR(loop->RunOnce(contested ? std::min(end_s, port.next_look_s()) : end_s));
  }
  if (!client.done()) return InternalError("rendezvous: no outcome after the deadline");
  if (!client.status().ok()) return port.Explain(client.status());
  const std::string_view encoded = *client.map_frame();
  CRIA_ASSIGN_OR_RETURN(RankMap map,
                        DecodeRankMap(encoded.substr(kFrameHeaderBytes), environment.world_size));
  CRIA_RETURN_IF_ERROR(CheckOwnRecord(environment, mine, map));
  return map;
}

}  // namespace cria::comm
