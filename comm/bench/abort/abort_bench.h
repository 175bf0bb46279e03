// The subcommand `cria comm abort-bench`. Single-threaded.

#ifndef CRIA_COMM_BENCH_ABORT_ABORT_BENCH_H_
#define CRIA_COMM_BENCH_ABORT_ABORT_BENCH_H_

namespace CLI {
class App;
}  // namespace CLI

namespace cria::comm {

// Adds the subcommand; at its end *exit_code is the program's exit status: 1 when a wait ended
// otherwise than by the abort.
void AddAbortBenchCommand(CLI::App* app, int* exit_code);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_ABORT_ABORT_BENCH_H_
