// MPI behind the interface of comm/api: for CPU clusters that have a tuned MPI.
//
//   mpirun -n 8 ./program                                     # Open MPI starts the ranks
//   CRIA_ASSIGN_OR_RETURN(auto world, comm::JoinMpiWorld({}));
//   world->AllReduce({...});
//
// All operations, types and reductions of comm/api, with its meaning: bfloat16 and float16 travel
// as float32 and are rounded once, avg does not overflow, FP8 moves as bytes, sizes have no limit,
// NaN and signed zeros as comm/reduce has them. How calls end is also as the interface says: every
// wait has a deadline, a mismatch is an error on all ranks that names the other side (unless
// checked = false, which saves an all_gather of 56 bytes a rank before each operation and the two
// headers of a message), an abort or a failure of one rank ends the others' waits: they look for
// notes from their peers while they wait.
//
// What MPI cannot do, and this does not hide:
// - The death of a process: mpirun ends the job. No rank is told who died first.
// - After a timeout or an abort, MPI still owns the buffers of that operation: keep them until the
//   process ends. The process then ends without MPI_Finalize, which would wait for the others.
// - A timeout does not name the rank that did not come.
// - NewGroup itself says nothing to anybody; the group's first operation meets the others and makes
//   the MPI communicator (MPI_Comm_create_group: 2 messages a rank, then log2(n) rounds).
//
// One world per process, once: MPI starts and ends once. Thread-safety as in communicator.h, which
// takes MPI_THREAD_MULTIPLE; `blocking` takes MPI's blocking calls, which are faster, know no
// deadline and no abort, and allow one thread: for measuring MPI itself.

#ifndef CRIA_COMM_MPI_MPI_COMMUNICATOR_H_
#define CRIA_COMM_MPI_MPI_COMMUNICATOR_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "debug/observer.h"

namespace cria::comm {

struct MpiOptions {
  std::string name = "world";
  double timeout_s = 300;  // of operations that name none
  bool checked = true;
  bool blocking = false;
  debug::Observer* observer = nullptr;  // may be null; outlives the communicators
};

// The ranks that mpirun started; one rank when it did not.
StatusOr<std::unique_ptr<Communicator>> JoinMpiWorld(const MpiOptions& options);

}  // namespace cria::comm

#endif  // CRIA_COMM_MPI_MPI_COMMUNICATOR_H_
