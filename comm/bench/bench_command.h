// `cria comm bench` on the command line. Single-threaded.

#ifndef CRIA_COMM_BENCH_BENCH_COMMAND_H_
#define CRIA_COMM_BENCH_BENCH_COMMAND_H_

namespace CLI {
class App;
}

namespace cria::comm {

// Adds the subcommand; when the parser meets it, it runs and sets *exit_code: 0 done, 1 a value was
// wrong or a rank failed, 2 usage.
void AddBenchCommand(CLI::App* app, int* exit_code);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_BENCH_COMMAND_H_
