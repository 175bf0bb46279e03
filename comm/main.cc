// `cria comm`: the collectives measured, checked and explained.
//
// Exit: 0 done; 1 something failed; 2 usage.

#include "CLI/CLI.hpp"
#include "comm/bench/abort/abort_bench.h"
#include "comm/bench/bench_command.h"
#include "comm/bench/init/init_bench.h"
#include "comm/conformance/conformance_command.h"
#include "comm/plan/explain_command.h"

int main(int argc, char** argv) {
  CLI::App app("Collectives: measured, checked, explained", "cria comm");
  app.require_subcommand(1);
  int exit_code = 0;
  cria::comm::AddBenchCommand(&app, &exit_code);
  cria::comm::AddConformanceCommand(&app, &exit_code);
  cria::comm::AddExplainCommand(&app, &exit_code);
  cria::comm::AddInitBenchCommand(&app, &exit_code);
  cria::comm::AddAbortBenchCommand(&app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_code;
}
