// A collective as data: rounds of tasks over the ranks' buffers. An algorithm (comm/algorithms)
// builds it, a transport runs it (comm/shm, comm/tcp), the cost model prices it, and the
// interpreter (plan/interpreter.h) runs it in one process, to prove it.
//
//   A round of the ring on 3 ranks, reduce-scatter part:
//     task{owner 1, sources {rank 0 input[A], rank 1 input[A]}, targets {rank 1 scratch[A]}}
//     task{owner 2, sources {rank 1 input[B], rank 2 input[B]}, targets {rank 2 scratch[B]}} ...
//
// A task: its owner takes `count` elements from each source, combines them in the order in which
// they stand (a single source is copied), and stores the result to every target. Meaning of a
// round: all its tasks read what the rounds before it left; no element that one task writes is read
// or written by another task of the round. Over shared memory the owner reads and writes its peers'
// buffers itself; over TCP a source's rank sends to the owner, and the owner to a target's rank.
//
// Slots. kInput and kOutput are the operation's buffers, in elements of its type; an output that is
// also the input (in place) must stay right: a task may write output[i] of a rank only in or after
// the last round in which anyone reads input[i] of that rank, in the same round only when it is the
// same task that reads it. Two exceptions: all_to_all is planned out of place (a rank that calls it
// in place gives a copy as kInput), and a broadcast never writes the root's output, which is its
// input. kScratch holds partial results in AccumulateType(dtype) when the
// operation reduces (bfloat16 travels as float32 between two hops), in dtype when it only moves.
// A value stored to kOutput is finished: divided for avg, rounded to dtype.
// A value read from kInput is raw; a value read from kScratch or kOutput by a reduction: kScratch
// is a partial; kOutput only moves.
//
// A plan is one rank's view: the tasks in which this rank is owner, source or target, each with
// all its sources and targets where this rank owns it, else with at least those of this rank. The
// order of tasks in a round is the same in all views: over TCP it is the order of the messages
// between two ranks. Thread-safe: a value, never changed once built.

#ifndef CRIA_COMM_PLAN_PLAN_H_
#define CRIA_COMM_PLAN_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "comm/api/types.h"

namespace cria::comm {

enum class Slot : uint8_t { kInput, kOutput, kScratch };

enum class Algorithm : uint8_t {
  kFlat,  // one round: every slice has an owner that reads all inputs
  kRing,
  kHalvingDoubling,  // Rabenseifner; recursive doubling for small counts
  kDoubleTree,
  kHierarchical,  // flat inside a host, another between hosts
  kPairwise,      // all_to_all: one partner a round
};
inline constexpr int kNumAlgorithms = 6;
const char* Name(Algorithm algorithm);  // "flat", "ring", "halving_doubling", ...

struct Region {
  int rank = 0;  // in the group
  Slot slot = Slot::kInput;
  int64_t offset = 0;  // elements
};

struct Task {
  int owner = 0;
  int64_t count = 0;  // elements, of every source and target; > 0
  std::vector<Region> sources;
  std::vector<Region> targets;
};

enum class LinkKind : uint8_t { kShm, kTcp };

struct Round {
  LinkKind link = LinkKind::kShm;  // kShm: owner, sources and targets share a host
  std::vector<Task> tasks;
};

struct Plan {
  Algorithm algorithm = Algorithm::kFlat;
  OpKind kind = OpKind::kBarrier;
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  int rank = 0;  // whose view this is
  int size = 0;
  int64_t count = 0;
  int root = -1;
  int64_t scratch_elements = 0;  // of this rank's kScratch
  std::vector<Round> rounds;     // the same number on all ranks; a rank's round may be empty
  // The same on all ranks exactly when they run the same plan: of kind, dtype, reduction, size,
  // count(s), root, algorithm and the hosts of the group.
  uint64_t digest = 0;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_PLAN_PLAN_H_
