// `cria comm init-bench` alone. Exit: 0 done; 1 something failed; 2 usage.

#include "CLI/CLI.hpp"
#include "comm/bench/init/init_bench.h"

int main(int argc, char** argv) {
  CLI::App app("How long a job of many ranks takes to start", "init_bench_main");
  app.require_subcommand(1);
  int exit_code = 0;
  cria::comm::AddInitBenchCommand(&app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_code;
}
