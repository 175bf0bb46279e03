#include "comm/bench/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/str.h"

namespace cria::comm {
namespace {

constexpr double kRoundSeconds = 0.5e-3;  // of a round's operations, when they are short
constexpr int kAggregateMax = 2000;

// True for the kinds whose size is that of all parts together.
bool HasParts(OpKind op) {
  switch (op) {
    case OpKind::kAllGather:
    case OpKind::kAllGatherV:
    case OpKind::kReduceScatter:
    case OpKind::kReduceScatterV:
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV:
    case OpKind::kGather:
    case OpKind::kScatter:
      return true;
    default:
      return false;
  }
}

bool IsRooted(OpKind op) {
  return op == OpKind::kReduce || op == OpKind::kBroadcast || op == OpKind::kGather ||
         op == OpKind::kScatter;
}

double Ratio(const std::vector<double>& numerators, const std::vector<double>& denominators) {
  std::vector<double> ratios;
  for (size_t i = 0; i < numerators.size() && i < denominators.size(); ++i) {
    if (denominators[i] > 0) ratios.push_back(numerators[i] / denominators[i]);
  }
  return Median(ratios);
}

}  // namespace

StatusOr<std::vector<BenchRow>> Measurer::Measure(OpKind op, DataType dtype, ReduceOp redop,
                                                  int64_t bytes) {
  const int size = contestants_.size();
  CollectiveShape shape = {.kind = op, .dtype = dtype, .op = redop, .root = options_.root};
  shape.count = bytes / ByteSize(dtype) / (HasParts(op) ? size : 1);
  if (op == OpKind::kBarrier) shape.count = 0;
  const Verifier sizes(shape, contestants_.rank(), size);
  const double elements =
      static_cast<double>(std::max(sizes.input_elements(), sizes.output_elements()));
  CRIA_ASSIGN_OR_RETURN(const double elements_max, board_->Max(elements));
  std::vector<BenchRow> rows;
  for (const Contestant& contestant : contestants_.all()) {
    rows.push_back({.impl = contestant.impl,
                    .buffers = contestant.buffers,
                    .op = op,
                    .dtype = dtype,
                    .redop = redop,
                    .bytes = static_cast<int64_t>(elements_max) * ByteSize(dtype),
                    .count = shape.count,
                    .root = IsRooted(op) ? shape.root : -1,
                    .ranks = size});
  }
  CRIA_RETURN_IF_ERROR(MeasurePlacement(shape, &rows));
  if (Verifier::HasInPlace(op)) {
    shape.in_place = true;
    CRIA_RETURN_IF_ERROR(MeasurePlacement(shape, &rows));
  }
  return rows;
}

void Measurer::Place(const Verifier& verifier, Entry* entry) const {
  const CollectiveShape& shape = verifier.shape();
  entry->input = entry->contestant->input;
  entry->output = entry->contestant->output;
  if (!shape.in_place) return;
  const int64_t element_bytes = ByteSize(shape.dtype);
  entry->input = entry->contestant->output + verifier.in_place_input() * element_bytes;
  entry->output = entry->contestant->output + verifier.in_place_output() * element_bytes;
}

Status Measurer::MeasurePlacement(const CollectiveShape& shape, std::vector<BenchRow>* rows) {
  const Verifier verifier(shape, contestants_.rank(), contestants_.size());
  std::vector<Entry> entries;
  for (size_t i = 0; i < rows->size(); ++i) {
    Entry entry = {.contestant = &contestants_.all()[i], .row = &(*rows)[i]};
    entry.result = shape.in_place ? &entry.row->in_place : &entry.row->out_of_place;
    Place(verifier, &entry);
    CRIA_ASSIGN_OR_RETURN(const bool there, Verify(verifier, &entry));
    if (!there) continue;
    entry.result->there = true;
    CRIA_RETURN_IF_ERROR(ChooseAllReduce(verifier, &entry));
    entries.push_back(std::move(entry));
  }
  TrafficKernel kernel(TrafficOf(shape, contestants_.size()));
  std::vector<double> bound_s;
  CRIA_RETURN_IF_ERROR(TimeRounds(verifier, &entries, &kernel, &bound_s));
  return Summarise(&entries, bound_s);
}

StatusOr<int64_t> Measurer::WrongOnce(const Verifier& verifier, Entry* entry, Status* outcome) {
  verifier.FillInput(const_cast<void*>(entry->input));
  if (!verifier.shape().in_place && verifier.output_elements() > 0) {
    std::memset(entry->output, 0xa5,
                static_cast<size_t>(verifier.output_elements() * ByteSize(verifier.shape().dtype)));
  }
  CRIA_RETURN_IF_ERROR(board_->Barrier());
  *outcome = verifier.Run(entry->contestant->comm, entry->input, entry->output, {}).Wait();
  if (!outcome->ok()) return 0;
  int64_t wrong = verifier.CountWrong(entry->output);
  if (!verifier.shape().in_place) wrong += verifier.CountInputChanged(entry->input);
  CRIA_ASSIGN_OR_RETURN(const double all, board_->Sum(static_cast<double>(wrong)));
  return static_cast<int64_t>(all);
}

StatusOr<bool> Measurer::Verify(const Verifier& verifier, Entry* entry) {
  // Without checks it runs once all the same: to see whether the library has it.
  int64_t wrong = 0;
  for (int check = 0; check < std::max(options_.checks, 1); ++check) {
    Status outcome;
    CRIA_ASSIGN_OR_RETURN(const int64_t more, WrongOnce(verifier, entry, &outcome));
    if (outcome.code() == StatusCode::kUnimplemented) {
      entry->result->why_not = "has no such operation";
      return false;
    }
    if (!outcome.ok()) return Annotate(outcome, entry->contestant->impl);
    wrong += more;
  }
  entry->result->wrong = options_.checks > 0 ? wrong : -1;
  return true;
}

// The library's fastest all-reduce for this size that is right.
Status Measurer::ChooseAllReduce(const Verifier& verifier, Entry* entry) {
  constexpr int kTries = 3;
  const Contestant& contestant = *entry->contestant;
  if (verifier.shape().kind != OpKind::kAllReduce || contestant.num_all_reduces == 0) {
    return OkStatus();
  }
  int best = 0;
  double best_s = 0;
  for (int index = 0; index < contestant.num_all_reduces; ++index) {
    contestant.choose_all_reduce(index);
    Status outcome;
    CRIA_ASSIGN_OR_RETURN(const int64_t wrong, WrongOnce(verifier, entry, &outcome));
    if (!outcome.ok()) return Annotate(outcome, contestant.impl);
    if (wrong > 0) continue;
    std::vector<double> seconds;
    for (int i = 0; i < kTries; ++i) {
      CRIA_ASSIGN_OR_RETURN(const double s, Time(verifier, entry, 3, false));
      seconds.push_back(s);
    }
    const double median_s = Median(seconds);
    if (best_s == 0 || median_s < best_s) {
      best_s = median_s;
      best = index;
    }
  }
  entry->row->algorithm = contestant.choose_all_reduce(best);
  return OkStatus();
}

Status Measurer::RunMany(const Verifier& verifier, Entry* entry, int operations, bool singles) {
  Communicator* const comm = entry->contestant->comm;
  if (!options_.blocking) {
    std::vector<Work> works;
    for (int i = 0; i < operations; ++i) {
      works.push_back(verifier.Run(comm, entry->input, entry->output, {.async = true}));
    }
    Status status;
    for (const Work& work : works) {
      const Status one = work.Wait();
      if (status.ok()) status = one;
    }
    return status;
  }
  for (int i = 0; i < operations; ++i) {
    const double start_s = singles ? RealClock()->MonotonicSeconds() : 0;
    CRIA_RETURN_IF_ERROR(verifier.Run(comm, entry->input, entry->output, {}).Wait());
    if (singles) entry->singles.push_back(RealClock()->MonotonicSeconds() - start_s);
  }
  return OkStatus();
}

StatusOr<double> Measurer::OverRanks(double mine) {
  CRIA_ASSIGN_OR_RETURN(const std::vector<double> all, board_->Gather(mine));
  switch (options_.average) {
    case 0:
      return all[0];
    case 1: {
      double sum = 0;
      for (const double value : all) sum += value;
      return sum / static_cast<double>(all.size());
    }
    case 2:
      return *std::min_element(all.begin(), all.end());
    default:
      return *std::max_element(all.begin(), all.end());
  }
}

StatusOr<double> Measurer::Time(const Verifier& verifier, Entry* entry, int operations,
                                bool singles) {
  CRIA_RETURN_IF_ERROR(board_->Barrier());
  const double start_s = RealClock()->MonotonicSeconds();
  const Status status = RunMany(verifier, entry, operations, singles);
  const double seconds = RealClock()->MonotonicSeconds() - start_s;
  if (!status.ok()) return Annotate(status, entry->contestant->impl);
  return OverRanks(seconds / operations);
}

StatusOr<double> Measurer::TimeKernel(TrafficKernel* kernel, TrafficStores stores, int repeats) {
  CRIA_RETURN_IF_ERROR(board_->Barrier());
  const double start_s = RealClock()->MonotonicSeconds();
  for (int i = 0; i < repeats; ++i) kernel->Run(stores);
  return OverRanks((RealClock()->MonotonicSeconds() - start_s) / repeats);
}

Status Measurer::TimeRounds(const Verifier& verifier, std::vector<Entry>* entries,
                            TrafficKernel* kernel, std::vector<double>* bound_s) {
  // Warm up; how many operations fill a round is the same for all, so that all see the same caches.
  double least_s = 1;
  for (Entry& entry : *entries) {
    for (int i = 0; i < std::max(options_.warmup, 1); ++i) {
      CRIA_ASSIGN_OR_RETURN(const double s, Time(verifier, &entry, 1, false));
      least_s = std::min(least_s, s);
    }
  }
  const int operations =
      options_.aggregate > 0
          ? options_.aggregate
          : std::clamp(static_cast<int>(std::ceil(kRoundSeconds / std::max(least_s, 1e-9))), 1,
                       kAggregateMax);
  // The bound takes the fastest way to move the bytes.
  TrafficStores fastest = TrafficStores::kPlain;
  double fastest_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3 * kNumTrafficStores; ++i) {
    const auto stores = static_cast<TrafficStores>(i % kNumTrafficStores);
    CRIA_ASSIGN_OR_RETURN(const double s, TimeKernel(kernel, stores, operations));
    if (s >= fastest_s) continue;
    fastest_s = s;
    fastest = stores;
  }
  const size_t n = entries->size();
  for (int round = 0; round < options_.iterations; ++round) {
    for (size_t i = 0; i < n; ++i) {
      // Each starts, each ends, each follows each.
      const size_t turn = (i + static_cast<size_t>(round) / 2) % n;
      Entry& entry = (*entries)[round % 2 == 0 ? turn : n - 1 - turn];
      CRIA_ASSIGN_OR_RETURN(const double s,
                            Time(verifier, &entry, operations, options_.per_iteration));
      entry.seconds.push_back(s);
    }
    CRIA_ASSIGN_OR_RETURN(const double s, TimeKernel(kernel, fastest, operations));
    bound_s->push_back(s);
  }
  return OkStatus();
}

Status Measurer::Summarise(std::vector<Entry>* entries, const std::vector<double>& bound_s) {
  const Entry* mpi = nullptr;
  const Entry* gloo = nullptr;
  for (const Entry& entry : *entries) {
    if (entry.contestant->impl == "mpi") mpi = &entry;
    if (entry.contestant->impl == "gloo") gloo = &entry;
  }
  for (Entry& entry : *entries) {
    Measurement& result = *entry.result;
    const double median_s = Median(entry.seconds);
    result.time_us = median_s * 1e6;
    result.spread =
        median_s > 0
            ? (Percentile(entry.seconds, 0.75) - Percentile(entry.seconds, 0.25)) / median_s
            : 0;
    const double flight_s = contestants_.size() > 1 ? flag_flight_s_ : 0;
    result.bound_us = (Median(bound_s) + flight_s) * 1e6;
    if (mpi != nullptr && mpi != &entry) result.times_mpi = Ratio(mpi->seconds, entry.seconds);
    if (gloo != nullptr && gloo != &entry) result.times_gloo = Ratio(gloo->seconds, entry.seconds);
    if (!options_.per_iteration) continue;
    CRIA_ASSIGN_OR_RETURN(const double p99_s, board_->Max(Percentile(entry.singles, 0.99)));
    result.p99_us = p99_s * 1e6;
  }
  return OkStatus();
}

}  // namespace cria::comm
