// One size of one operation: every library verified, then timed in turns.
//
//   Measurer measurer(&options, &board, &contestants, flag_flight_s);
//   CRIA_ASSIGN_OR_RETURN(std::vector<BenchRow> rows, measurer.Measure(op, dtype, redop, bytes));
//
// A round times each library once, `aggregate` operations between two barriers, in an order that
// changes from round to round; a time is the slowest rank's (--average). Rows carry medians of the
// rounds, and ratios are medians of the ratios in the same round: what disturbs the machine
// disturbs all. All rank processes call it alike. Thread-compatible.

#ifndef CRIA_COMM_BENCH_MEASURE_H_
#define CRIA_COMM_BENCH_MEASURE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "comm/bench/bench_options.h"
#include "comm/bench/board.h"
#include "comm/bench/contestants.h"
#include "comm/bench/report.h"
#include "comm/bench/traffic.h"
#include "comm/bench/verifier.h"

namespace cria::comm {

class Measurer {
 public:
  // The arguments outlive this object.
  Measurer(const BenchOptions* options, Board* board, const Contestants* contestants,
           double flag_flight_s)
      : options_(*options),
        board_(board),
        contestants_(*contestants),
        flag_flight_s_(flag_flight_s) {}

  StatusOr<std::vector<BenchRow>> Measure(OpKind op, DataType dtype, ReduceOp redop, int64_t bytes);

 private:
  struct Entry {
    const Contestant* contestant = nullptr;
    const void* input = nullptr;
    void* output = nullptr;
    std::vector<double> seconds = {};  // of one operation, by round
    std::vector<double> singles = {};  // of single operations, of this rank
    BenchRow* row = nullptr;
    Measurement* result = nullptr;
  };

  Status MeasurePlacement(const CollectiveShape& shape, std::vector<BenchRow>* rows);
  void Place(const Verifier& verifier, Entry* entry) const;
  // False when the library does not have the operation.
  StatusOr<bool> Verify(const Verifier& verifier, Entry* entry);
  StatusOr<int64_t> WrongOnce(const Verifier& verifier, Entry* entry, Status* outcome);
  Status ChooseAllReduce(const Verifier& verifier, Entry* entry);
  // Seconds of one operation, `operations` of them run, over the ranks as --average says.
  StatusOr<double> Time(const Verifier& verifier, Entry* entry, int operations, bool singles);
  Status RunMany(const Verifier& verifier, Entry* entry, int operations, bool singles);
  StatusOr<double> TimeKernel(TrafficKernel* kernel, TrafficStores stores, int repeats);
  StatusOr<double> OverRanks(double mine);
  Status TimeRounds(const Verifier& verifier, std::vector<Entry>* entries, TrafficKernel* kernel,
                    std::vector<double>* bound_s);
  Status Summarise(std::vector<Entry>* entries, const std::vector<double>& bound_s);

  const BenchOptions& options_;
  Board* const board_;
  const Contestants& contestants_;
  const double flag_flight_s_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_MEASURE_H_
