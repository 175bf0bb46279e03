// Runs a script in the interpreter that the variable CRIA_PEER_PYTHON names.
//
//   const StatusOr<std::string> out = RunPeer("tests/peers/x_peer.py", {folder});
//   if (out.status().code() == StatusCode::kUnavailable) GTEST_SKIP() << out.status();
//
// Single-threaded.

#ifndef CRIA_TESTS_PEERS_PEER_PYTHON_H_
#define CRIA_TESTS_PEERS_PEER_PYTHON_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace cria {

// What the script printed on standard output; standard error goes to ours. Unavailable, with what
// would enable it, when the variable is not set or the script exits with 77 (its packages are
// missing); Internal for any other exit status but 0.
StatusOr<std::string> RunPeer(const std::string& script, const std::vector<std::string>& args);

}  // namespace cria

#endif  // CRIA_TESTS_PEERS_PEER_PYTHON_H_
