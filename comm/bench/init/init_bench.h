// `cria comm init-bench` on the command line: how long a job takes to start, by scheme and number
// of ranks. Single-threaded.

#ifndef CRIA_COMM_BENCH_INIT_INIT_BENCH_H_
#define CRIA_COMM_BENCH_INIT_INIT_BENCH_H_

namespace CLI {
class App;
}

namespace cria::comm {

// Adds the subcommand; when the parser meets it, it runs and sets *exit_code: 0 done, 1 a scheme
// failed for another reason than its limit of time, 2 usage.
void AddInitBenchCommand(CLI::App* app, int* exit_code);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_INIT_INIT_BENCH_H_
