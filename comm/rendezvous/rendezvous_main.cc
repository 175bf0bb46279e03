// The rendezvous' master as a program of its own, for jobs whose rank 0 shall not serve: any number
// of jobs, at once or one after another, told apart by the launcher's job name.
//
//   rendezvous_main --port 29500          then MASTER_ADDR=<this host>, MASTER_PORT=29500 for ranks
//
// Exit: 0 after SIGTERM or SIGINT; 1 when the port cannot be served; 2 usage.

#include <csignal>
#include <cstdio>

#include "CLI/CLI.hpp"
#include "base/log.h"
#include "comm/rendezvous/event_loop.h"
#include "comm/rendezvous/rendezvous_server.h"
#include "comm/rendezvous/tree.h"

namespace {

volatile sig_atomic_t stopped = 0;

cria::Status Serve(const cria::comm::RendezvousServerOptions& options) {
  constexpr double kLookSeconds = 0.2;  // at the signal
  CRIA_ASSIGN_OR_RETURN(const auto loop, cria::comm::EventLoop::Create());
  CRIA_ASSIGN_OR_RETURN(const auto server,
                        cria::comm::RendezvousServer::Create(loop.get(), options));
  cria::LogInfo("rendezvous: serving at port ", server->port());
  while (stopped == 0) CRIA_RETURN_IF_ERROR(loop->RunOnce(loop->now_s() + kLookSeconds));
  return cria::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The master of the rendezvous, alone", "rendezvous_main");
  cria::comm::RendezvousServerOptions options = {.port = 29500};
  app.add_option("--address", options.address, "Numeric address to serve at; all of them without");
  app.add_option("--port", options.port, "Port; 0 takes any and says which")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--degree", options.degree, "Of the tree")
      ->check(CLI::Range(2, cria::comm::kTreeDegreeMax))
      ->capture_default_str();
  app.add_option("--timeout", options.timeout_s, "Seconds from a job's first rank to its map")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::signal(SIGTERM, [](int) { stopped = 1; });
  std::signal(SIGINT, [](int) { stopped = 1; });
  if (const cria::Status status = Serve(options); !status.ok()) {
    std::fprintf(stderr, "rendezvous_main: %s\n", cria::Message(status).c_str());
    return cria::ExitCode(status);
  }
  return 0;
}
