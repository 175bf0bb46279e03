// `cria comm conformance` on the command line. Single-threaded.

#ifndef CRIA_COMM_CONFORMANCE_CONFORMANCE_COMMAND_H_
#define CRIA_COMM_CONFORMANCE_CONFORMANCE_COMMAND_H_

namespace CLI {
class App;
}

namespace cria::comm {

// Adds the subcommand; when the parser meets it, it runs and sets *exit_code: 0 no row failed, 1
// one did, 2 usage.
void AddConformanceCommand(CLI::App* app, int* exit_code);

}  // namespace cria::comm

#endif  // CRIA_COMM_CONFORMANCE_CONFORMANCE_COMMAND_H_
