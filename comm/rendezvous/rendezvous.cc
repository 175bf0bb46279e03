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

// Rank 0's server; null when the port is taken, as by a stand-alone server.
StatusOr<std::unique_ptr<RendezvousServer>> ServeJob(EventLoop* loop,
                                                     const RankEnvironment& environment,
                                                     const RendezvousOptions& options) {
  auto server = RendezvousServer::Create(loop, {.port = environment.master_port,
                                                .degree = options.degree,
                                                .timeout_s = options.timeout_s,
                                                .one_job = true,
                                                .job = environment.job,
                                                .world_size = environment.world_size});
  if (server.status().code() == StatusCode::kUnavailable) {
    return std::unique_ptr<RendezvousServer>();
  }
  return server;
}

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
  std::unique_ptr<RendezvousServer> server;
  if (environment.rank == 0) {
    CRIA_ASSIGN_OR_RETURN(server, ServeJob(loop.get(), environment, options));
  }
  CRIA_ASSIGN_OR_RETURN(const SocketAddress master,
                        MasterAddress(environment, server != nullptr, mine, options.timeout_s));
  RendezvousClient client(
      loop.get(), {.master = master,
                   .environment = environment,
                   .record = mine,
                   .timeout_s = std::max(1e-3, deadline_s - RealClock()->MonotonicSeconds()),
                   .master_restart_s = options.master_restart_s});
  client.Start();
  const auto over = [&client, &server] {
    return client.done() && (server == nullptr || server->idle() || server->done());
  };
  while (!over() && loop->now_s() < deadline_s + kGraceSeconds) {
    CRIA_RETURN_IF_ERROR(loop->RunOnce(deadline_s + kGraceSeconds));
  }
  if (!client.done()) return InternalError("rendezvous: no outcome after the deadline");
  if (!client.status().ok()) {
    if (environment.rank != 0 || server != nullptr) return client.status();
    return Annotate(client.status(), StrCat("port ", environment.master_port,
                                            " is taken by another program, asked as a master"));
  }
  const std::string_view encoded = *client.map_frame();
  CRIA_ASSIGN_OR_RETURN(RankMap map,
                        DecodeRankMap(encoded.substr(kFrameHeaderBytes), environment.world_size));
  CRIA_RETURN_IF_ERROR(CheckOwnRecord(environment, mine, map));
  return map;
}

}  // namespace cria::comm
