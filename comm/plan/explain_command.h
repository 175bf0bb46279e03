// `cria comm explain` on the command line. Single-threaded.

#ifndef CRIA_COMM_PLAN_EXPLAIN_COMMAND_H_
#define CRIA_COMM_PLAN_EXPLAIN_COMMAND_H_

namespace CLI {
class App;
}

namespace cria::comm {

// Adds the subcommand; when the parser meets it, it runs and sets *exit_code: 0 done, 1 the plan
// broke a rule (--check), 2 usage.
void AddExplainCommand(CLI::App* app, int* exit_code);

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_EXPLAIN_COMMAND_H_
