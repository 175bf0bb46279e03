// A port for a program that will be started in a moment: a job's master.
//
//   CRIA_ASSIGN_OR_RETURN(const int port, FreePort());      // 1 call, 1 port: the next is another
//
// It is below the ports that the kernel gives to connections (32,768 and up by default): one of
// those may go to any socket of this machine, to one of this very job's as well, before the program
// listens. Processes that ask at one moment begin at different places. ResourceExhausted when all
// 20,000 are taken. Thread-safe.

#ifndef CRIA_COMM_NET_FREE_PORT_H_
#define CRIA_COMM_NET_FREE_PORT_H_

#include "base/status.h"

namespace cria::comm {

StatusOr<int> FreePort();

}  // namespace cria::comm

#endif  // CRIA_COMM_NET_FREE_PORT_H_
