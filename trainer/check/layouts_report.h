// The verdict on a layout, and how it is shown: a line for people, an object for scripts.
//
//   const LayoutLimits limits = LimitsOf(Precision::kFp32, /*invariant=*/false);
//   row.problem = JudgeDifference(row.difference, limits);
//   std::printf("%s\n", FormatRow(row).c_str());
//
// Thread-safe: values.

#ifndef CRIA_TRAINER_CHECK_LAYOUTS_REPORT_H_
#define CRIA_TRAINER_CHECK_LAYOUTS_REPORT_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "model/parallel/mesh.h"
#include "model/precision.h"
#include "trainer/check/layouts_record.h"

namespace cria::trainer {

// How far a layout may be from one rank.
struct LayoutLimits {
  double relative = 0;     // of losses, norms and weights
  double gradients = 0;    // of each tensor's of the first step, which no optimizer has evened out
  bool bit_equal = false;  // nothing may differ at all
};

// 1e-6 in fp32; 2e-3 in bf16; in FP8, where a rounding may fall the other way by a step of 1/8 of
// the value, 2e-2; a tensor's gradient, of fewer numbers than a norm, five times as far in both;
// bit-equal where sums are order-free (numerics: invariant) in fp32.
LayoutLimits LimitsOf(model::Precision precision, bool invariant);

struct LayoutRow {
  model::Layout layout;
  RunDifference difference = {};  // from one rank
  std::string problem = {};       // the first thing that is wrong; empty: ok
  double seconds = 0;

  bool ok() const { return problem.empty(); }
};

// What is over its limit, or empty.
std::string JudgeDifference(const RunDifference& difference, const LayoutLimits& limits);

// The columns of FormatRow.
std::string RowsHeader();
// One line, and the problem where there is one, without a newline.
std::string FormatRow(const LayoutRow& row);
// How many, how many of them failed, the largest differences and where they were.
std::string FormatSummary(const std::vector<LayoutRow>& rows, const LayoutLimits& limits);
// {"ok": ..., "limit": ..., "layouts": [{"layout": "tp2,cp2", "tp": 2, ...}, ...]}
StatusOr<std::string> FormatJson(const std::vector<LayoutRow>& rows, const LayoutLimits& limits);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECK_LAYOUTS_REPORT_H_
