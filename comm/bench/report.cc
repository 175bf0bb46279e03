#include "comm/bench/report.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/str.h"

namespace cria::comm {
namespace {

std::string OpName(OpKind op) { return op == OpKind::kSend ? "sendrecv" : Name(op); }

std::string Time(double us) {
  return StrFormat(us < 10 ? "%9.2f" : us < 1000 ? "%9.1f" : "%9.0f", us);
}

std::string Times(double ratio) { return ratio > 0 ? StrFormat("%6.2f", ratio) : "     -"; }

std::string Half(const BenchRow& row, const Measurement& m) {
  if (!m.there) return StrFormat("%9s %6s %6s %6s %9s %6s %6s", "-", "-", "-", "-", "-", "-", "-");
  const double bandwidth = AlgorithmBandwidth(row.bytes, m.time_us);
  const std::string wrong = m.wrong < 0 ? "N/A" : StrCat(m.wrong);
  return StrCat(Time(m.time_us),
                StrFormat(" %6.2f %6.2f %6s ", bandwidth, bandwidth * BusFactor(row.op, row.ranks),
                          wrong.c_str()),
                Time(m.bound_us), " ", Times(m.times_mpi), " ", Times(m.times_gloo));
}

Json ToJson(const BenchRow& row, const Measurement& m, bool in_place) {
  const double bandwidth = AlgorithmBandwidth(row.bytes, m.time_us);
  Json json = {{"impl", row.impl},
               {"op", OpName(row.op)},
               {"bytes", row.bytes},
               {"time_us", m.time_us},
               {"algbw", bandwidth},
               {"busbw", bandwidth * BusFactor(row.op, row.ranks)},
               {"wrong", m.wrong},
               {"buffers", row.buffers},
               {"in_place", in_place},
               {"ranks", row.ranks},
               {"count", row.count},
               {"type", Name(row.dtype)},
               {"redop", Reduces(row.op) ? Name(row.redop) : "none"},
               {"root", row.root},
               {"bound_us", m.bound_us},
               {"spread", m.spread}};
  if (m.times_mpi > 0) json["times_mpi"] = m.times_mpi;
  if (m.times_gloo > 0) json["times_gloo"] = m.times_gloo;
  if (m.p99_us > 0) json["p99_us"] = m.p99_us;
  if (!row.algorithm.empty()) json["algorithm"] = row.algorithm;
  return json;
}

}  // namespace

double AlgorithmBandwidth(int64_t bytes, double time_us) {
  return time_us > 0 ? static_cast<double>(bytes) / time_us / 1e3 : 0;
}

double BusFactor(OpKind op, int ranks) {
  const double n = ranks;
  switch (op) {
    case OpKind::kAllReduce:
      return 2 * (n - 1) / n;
    case OpKind::kAllGather:
    case OpKind::kAllGatherV:
    case OpKind::kReduceScatter:
    case OpKind::kReduceScatterV:
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV:
    case OpKind::kGather:
    case OpKind::kScatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

void PrintHeader(std::FILE* out, const std::vector<std::string>& facts) {
  for (const std::string& fact : facts) std::fprintf(out, "# %s\n", fact.c_str());
  std::fprintf(out, "#\n# %-62s%-55s  %s\n", "", "out-of-place", "in-place");
  const std::string half = StrFormat("%9s %6s %6s %6s %9s %6s %6s", "time", "algbw", "busbw",
                                     "#wrong", "bound", "x mpi", "x gloo");
  std::fprintf(out, "# %-5s%-8s %12s %11s %9s %6s %4s %s  %s\n", "impl", "buffers", "size", "count",
               "type", "redop", "root", half.c_str(), half.c_str());
  const std::string units =
      StrFormat("%9s %6s %6s %6s %9s %6s %6s", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "", "");
  std::fprintf(out, "# %-5s%-8s %12s %11s %9s %6s %4s %s  %s\n", "", "", "(B)", "(elements)", "",
               "", "", units.c_str(), units.c_str());
  std::fflush(out);
}

void PrintRow(std::FILE* out, const BenchRow& row) {
  const std::string op = OpName(row.op);
  std::string notes;
  if (!row.algorithm.empty()) notes += StrCat("  ", row.algorithm);
  if (!row.out_of_place.there) notes += StrCat("  ", row.out_of_place.why_not);
  if (row.out_of_place.p99_us > 0) {
    notes +=
        StrFormat("  p99 %.1f us, %.1f us in place", row.out_of_place.p99_us, row.in_place.p99_us);
  }
  std::fprintf(out, "  %-5s%-8s %12lld %11lld %9s %6s %4d %s  %s%s\n", row.impl.c_str(),
               row.buffers.c_str(), static_cast<long long>(row.bytes),
               static_cast<long long>(row.count), Name(row.dtype),
               Reduces(row.op) ? Name(row.redop) : "none", row.root,
               Half(row, row.out_of_place).c_str(), Half(row, row.in_place).c_str(), notes.c_str());
  std::fflush(out);
}

StatusOr<std::string> RowsAsJson(const std::vector<BenchRow>& rows) {
  Json all = Json::array();
  for (const BenchRow& row : rows) {
    if (row.out_of_place.there) all.push_back(ToJson(row, row.out_of_place, false));
    if (row.in_place.there) all.push_back(ToJson(row, row.in_place, true));
  }
  return DumpJson(all, 1);
}

double Percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  const double part = place - static_cast<double>(below);
  return values[below] + (values[above] - values[below]) * part;
}

double Median(std::vector<double> values) { return Percentile(std::move(values), 0.5); }

}  // namespace cria::comm
