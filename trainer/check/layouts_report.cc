#include "trainer/check/layouts_report.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/str.h"
#include "trainer/check/layout_list.h"

namespace cria::trainer {
namespace {

// JSON has no infinity.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string DescribeLimit(const LayoutLimits& limits) {
  return limits.bit_equal ? "bit-equal" : StrFormat("%.0e", limits.relative);
}

// "1.2e-07 (tp2,cp2)": the largest of one kind of difference.
std::string Largest(const std::vector<LayoutRow>& rows, double RunDifference::*kind) {
  const auto most =
      std::max_element(rows.begin(), rows.end(), [kind](const LayoutRow& a, const LayoutRow& b) {
        return a.difference.*kind < b.difference.*kind;
      });
  if (most == rows.end()) return "-";
  return StrFormat("%.1e (", most->difference.*kind) + FormatLayout(most->layout) + ")";
}

}  // namespace

LayoutLimits LimitsOf(model::Precision precision, bool invariant) {
  if (precision == model::Precision::kFp32) {
    return {.relative = invariant ? 0 : 1e-6,
            .gradients = invariant ? 0 : 1e-6,
            .bit_equal = invariant};
  }
  if (precision == model::Precision::kBf16) return {.relative = 2e-3, .gradients = 1e-2};
  return {.relative = 2e-2, .gradients = 1e-1};
}

std::string JudgeDifference(const RunDifference& difference, const LayoutLimits& limits) {
  const auto over = [&limits](double value) { return !(value <= limits.relative); };
  if (over(difference.loss)) {
    return StrFormat("a loss differs by %.1e from one rank's", difference.loss);
  }
  if (over(difference.grad_norm)) {
    return StrFormat("a grad-norm differs by %.1e from one rank's", difference.grad_norm);
  }
  if (over(difference.weights)) {
    return StrFormat("%s differs by %.1e from one rank's", difference.worst_tensor.c_str(),
                     difference.weights);
  }
  if (!(difference.gradients <= limits.gradients)) {
    return StrFormat("the first gradient of %s differs by %.1e from one rank's",
                     difference.worst_gradient.c_str(), difference.gradients);
  }
  if (limits.bit_equal && !difference.bit_equal) return "not the same bits as one rank's";
  return "";
}

std::string RowsHeader() {
  return StrFormat("%-30s %5s %10s %10s %10s %10s %6s  %s", "layout", "ranks", "loss", "grad-norm",
                   "gradients", "weights", "s", "beside one rank");
}

std::string FormatRow(const LayoutRow& row) {
  const RunDifference& d = row.difference;
  return StrFormat(
      "%-30s %5d %10.1e %10.1e %10.1e %10.1e %6.2f  %s", FormatLayout(row.layout).c_str(),
      row.layout.world_size(), d.loss, d.grad_norm, d.gradients, d.weights, row.seconds,
      row.ok() ? (d.bit_equal ? "ok, bit-equal" : "ok") : ("FAILED: " + row.problem).c_str());
}

std::string FormatSummary(const std::vector<LayoutRow>& rows, const LayoutLimits& limits) {
  const auto failed =
      std::count_if(rows.begin(), rows.end(), [](const LayoutRow& row) { return !row.ok(); });
  const auto equal = std::count_if(rows.begin(), rows.end(), [](const LayoutRow& row) {
    return row.ok() && row.difference.bit_equal;
  });
  return StrCat(rows.size(), " layouts, ", failed, " failed, ", equal,
                " bit-equal to one rank; limit ", DescribeLimit(limits),
                "\nlargest relative difference: loss ", Largest(rows, &RunDifference::loss),
                ", grad-norm ", Largest(rows, &RunDifference::grad_norm), ", gradients ",
                Largest(rows, &RunDifference::gradients), ", weights ",
                Largest(rows, &RunDifference::weights));
}

StatusOr<std::string> FormatJson(const std::vector<LayoutRow>& rows, const LayoutLimits& limits) {
  Json list = Json::array();
  bool ok = true;
  for (const LayoutRow& row : rows) {
    ok = ok && row.ok();
    list.push_back({{"layout", FormatLayout(row.layout)},
                    {"ranks", row.layout.world_size()},
                    {"tp", row.layout.tp},
                    {"cp", row.layout.cp},
                    {"pp", row.layout.pp},
                    {"dp", row.layout.dp},
                    {"shard", Name(row.layout.shard)},
                    {"pp_chunks", row.layout.pp_chunks},
                    {"pp_short_ends", row.layout.pp_short_ends},
                    {"loss", Number(row.difference.loss)},
                    {"grad_norm", Number(row.difference.grad_norm)},
                    {"gradients", Number(row.difference.gradients)},
                    {"weights", Number(row.difference.weights)},
                    {"bit_equal", row.difference.bit_equal},
                    {"seconds", row.seconds},
                    {"ok", row.ok()},
                    {"problem", row.problem}});
  }
  return DumpJson({{"ok", ok},
                   {"limit", limits.relative},
                   {"limit_of_gradients", limits.gradients},
                   {"must_be_bit_equal", limits.bit_equal},
                   {"layouts", std::move(list)}},
                  2);
}

}  // namespace cria::trainer
