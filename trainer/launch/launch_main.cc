// cria launch: N ranks of a command on this machine. The script `cria` puts the program of a cria
// command behind the "--"; any other program works as well.
//
// Exit: that of the first rank that failed, as a shell gives it (127: there is no such program); 0;
// 2 usage.

#include <algorithm>
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "trainer/launch/launcher.h"

namespace cria::trainer {
namespace {

void AddFlags(CLI::App* app, LaunchOptions* options) {
  app->add_option("-n,--nproc-per-node,--nproc_per_node", options->ranks, "ranks on this machine")
      ->required();
  app->add_option("--nnodes", options->num_nodes, "machines, each with its own cria launch")
      ->capture_default_str();
  app->add_option("--node-rank,--node_rank", options->node_rank, "which of them this is, from 0")
      ->capture_default_str();
  app->add_option("--master-addr,--master_addr", options->master_address,
                  "the machine of node rank 0 [127.0.0.1]");
  app->add_option("--master-port,--master_port", options->master_port,
                  "where rank 0 meets the others [a free one; 29500 with --nnodes]");
  app->add_option("--rdzv-id,--rdzv_id", options->run_id,
                  "tells runs at one port apart; the same on all machines");
  app->add_option("--grace", options->grace_s,
                  "seconds from SIGTERM to SIGKILL, once a rank has failed")
      ->capture_default_str();
  app->add_option("--log-dir,--log_dir", options->log_dir,
                  "output of all ranks but 0 to DIR/rank_N.out and .err");
}

int Main(int argc, char** argv) {
  CLI::App app("Starts ranks of a command with torchrun's environment, and ends them together.",
               "cria launch");
  app.footer("The command and all its arguments follow: cria launch -n 2 -- train --steps 100");
  LaunchOptions options;
  AddFlags(&app, &options);
  char** const end = argv + argc;
  char** const dashes =
      std::find_if(argv, end, [](const char* word) { return std::string(word) == "--"; });
  if (dashes != end) options.command.assign(dashes + 1, end);
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (options.command.empty()) {
    std::fprintf(stderr,
                 "cria launch: no command: expected -- COMMAND [ARGUMENT ...] at the end\n");
    return 2;
  }
  const StatusOr<LaunchResult> result = Launch(options);
  if (!result.ok()) {
    std::fprintf(stderr, "cria launch: %s\n", Message(result.status()).c_str());
    return ExitCode(result.status());
  }
  if (!result->message.empty()) {
    std::fprintf(stderr, "cria launch: %s\n", result->message.c_str());
  }
  return result->exit_code;
}

}  // namespace
}  // namespace cria::trainer

int main(int argc, char** argv) { return cria::trainer::Main(argc, argv); }
