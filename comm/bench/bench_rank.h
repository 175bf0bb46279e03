// What a rank process of the benchmark does; rank 0 prints. Single-threaded but for the libraries.

#ifndef CRIA_COMM_BENCH_BENCH_RANK_H_
#define CRIA_COMM_BENCH_BENCH_RANK_H_

#include <string>

#include "base/status.h"
#include "comm/bench/bench_options.h"

namespace cria::comm {

// `folder` is the job's, on all ranks. The status says what failed; Internal when an element was
// wrong.
Status RunBenchRank(const BenchOptions& options, const std::string& folder);

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_BENCH_RANK_H_
