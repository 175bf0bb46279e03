// The rows of the benchmark: a table in nccl-tests' manner as they come, and JSON at the end.
// Thread-compatible.

#ifndef CRIA_COMM_BENCH_REPORT_H_
#define CRIA_COMM_BENCH_REPORT_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/types.h"

namespace cria::comm {

// One library, out of place or in place.
struct Measurement {
  bool there = false;  // false: the library has no such operation, or no form in place
  std::string why_not = {};
  double time_us = 0;    // of one operation, the median round
  double p99_us = 0;     // of single operations; 0 unless asked for
  int64_t wrong = -1;    // elements; -1: not checked
  double bound_us = 0;   // of the memory's traffic and one flag flight
  double times_mpi = 0;  // how many times faster than MPI in the same rounds; 0: no MPI
  double times_gloo = 0;
  double spread = 0;  // interquartile range over the median
};

struct BenchRow {
  std::string impl = {};
  std::string buffers = {};    // "segment", "private"
  std::string algorithm = {};  // where the benchmark chose it
  OpKind op = OpKind::kAllReduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp redop = ReduceOp::kSum;
  int64_t bytes = 0;
  int64_t count = 0;
  int root = -1;
  int ranks = 0;  // of the group
  Measurement out_of_place = {};
  Measurement in_place = {};
};

// GB/s of `bytes` in `time_us`; and how many times that every link carries, nccl-tests' bus factor.
double AlgorithmBandwidth(int64_t bytes, double time_us);
double BusFactor(OpKind op, int ranks);

void PrintHeader(std::FILE* out, const std::vector<std::string>& facts);
void PrintRow(std::FILE* out, const BenchRow& row);

// An array with an object for each row and placement that is there.
StatusOr<std::string> RowsAsJson(const std::vector<BenchRow>& rows);

// 0 of none. Sorts.
double Median(std::vector<double> values);
double Percentile(std::vector<double> values, double fraction);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_REPORT_H_
