// The two compressed lists in which Slurm describes a job's hosts.
//
//   ExpandNodeList("node[01-03,07],login", 100)  ->  node01 node02 node03 node07 login
//   ExpandTasksPerNode("4(x2),3", 100)           ->  4 4 3
//
// Thread-safe. Errors: InvalidArgument with the list and what is wrong in it, also when it has more
// than `limit` entries. Source: Slurm's hostlist format (scontrol show hostnames), also with more
// than one bracket in a name.

#ifndef CRIA_COMM_RENDEZVOUS_SLURM_LISTS_H_
#define CRIA_COMM_RENDEZVOUS_SLURM_LISTS_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace cria::comm {

StatusOr<std::vector<std::string>> ExpandNodeList(const std::string& list, int limit);

StatusOr<std::vector<int>> ExpandTasksPerNode(const std::string& list, int limit);

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_SLURM_LISTS_H_
