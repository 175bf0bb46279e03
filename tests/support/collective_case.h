// One collective, checked against what it must give: every kind, type and reduction, in place or
// not, at any alignment, from private or shared memory.
//
//   EXPECT_EQ(CheckCollective(world, {.kind = OpKind::kAllReduce, .count = 1000}), "");
//
// All ranks call it with the same case. Values depend on rank and position and are small integers,
// so that every order of a reduction gives the same bits and the expected ones are known exactly.
// What must stay untouched (a caller's input, outputs of ranks that are not the root, bytes around
// the buffers) is checked as well.

#ifndef CRIA_TESTS_SUPPORT_COLLECTIVE_CASE_H_
#define CRIA_TESTS_SUPPORT_COLLECTIVE_CASE_H_

#include <cstdint>
#include <string>

#include "comm/api/communicator.h"

namespace cria {

struct CollectiveCase {
  comm::OpKind kind = comm::OpKind::kAllReduce;
  comm::DataType dtype = comm::DataType::kFloat32;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  int64_t count = 0;  // the V kinds: parts of count + rank, every third one empty
  int root = 0;
  bool in_place = false;
  bool shared = false;  // buffers from Communicator::Allocate
  int offset_bytes = 0;
  comm::CallOptions call = {};
};

// "all_reduce float32 sum count 7 root 0 in place".
std::string Describe(const CollectiveCase& test);

// Empty when everything is as it must be; else the error, or the first wrong element.
std::string CheckCollective(comm::Communicator& comm, const CollectiveCase& test);

}  // namespace cria

#endif  // CRIA_TESTS_SUPPORT_COLLECTIVE_CASE_H_
