// What `cria comm bench` is told: nccl-tests' flags, and those of this benchmark.
// Thread-safe: values.

#ifndef CRIA_COMM_BENCH_BENCH_OPTIONS_H_
#define CRIA_COMM_BENCH_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/types.h"

namespace cria::comm {

struct BenchOptions {
  std::vector<std::string> impls = {"cria"};
  int ranks = 2;
  std::vector<OpKind> ops = {OpKind::kAllReduce};
  std::vector<DataType> dtypes = {DataType::kFloat32};
  std::vector<ReduceOp> redops = {ReduceOp::kSum};
  int64_t min_bytes = 32 << 20;
  int64_t max_bytes = 32 << 20;
  int64_t step_bytes = 1 << 20;
  double step_factor = 0;  // 0: add step_bytes
  int iterations = 20;     // timed rounds of a size
  int warmup = 5;
  int aggregate = 0;      // operations of a round, between two barriers; 0: as many as last 0.5 ms
  int checks = 1;         // verifications of a size and library before it is timed
  int unalign_bytes = 0;  // buffers start that far from a line of the cache
  int average = 3;        // over ranks: 0 rank 0's, 1 mean, 2 least, 3 greatest
  bool blocking = true;   // false: asynchronous, waited for at the end of a round
  int root = 0;
  double timeout_s = 120;
  bool per_iteration = false;  // the 99th percentile of single operations as well
  int cycles = 1;
  std::string json_file = {};
  bool json = false;
  std::vector<std::string> buffers = {"segment"};  // of cria: segment, private
  std::string split = {};                          // "MOD 2", "DIV 2", "AND 0x1"
};

// "64M", "1G", "8", "4K": powers of 1024.
StatusOr<int64_t> ParseBytes(const std::string& text);

// The sizes of the sweep, ascending.
std::vector<int64_t> SizesOf(const BenchOptions& options);

// The colour of a rank under NCCL_TESTS_SPLIT's words: MOD n, DIV n, AND mask, OR mask.
StatusOr<int> SplitColor(const std::string& split, int rank);

// "all", or names with commas; "sendrecv" and nccl-tests' other names too.
StatusOr<std::vector<OpKind>> ParseOps(const std::string& text);
StatusOr<std::vector<DataType>> ParseDataTypes(const std::string& text);
StatusOr<std::vector<ReduceOp>> ParseReduceOps(const std::string& text);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_BENCH_OPTIONS_H_
