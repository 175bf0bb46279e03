#include "trainer/bench/verify_step.h"

#include <cmath>
#include <cstring>

#include "base/parallel.h"

namespace cria::trainer {
namespace {

struct Tolerance {
  double loss, grad_norm;
};

Tolerance ToleranceOf(model::Precision precision) {
  if (precision == model::Precision::kFp32) return {1e-4, 1e-4};
  if (precision == model::Precision::kBf16) return {2e-3, 2e-2};
  return {1e-2, 1e-1};
}

// False for a NaN as well.
bool IsClose(double got, double want, double tolerance) {
  return std::abs(got - want) <= tolerance * std::abs(want);
}

}  // namespace

StatusOr<StepResult> VerifyThreads(BenchStep* step, model::Precision precision,
                                   const std::vector<int>& threads) {
  const int before = NumThreads();
  const model::Tensor& gradients = step->model().gradients();
  std::vector<char> first;
  StepResult result;
  Status status;
  for (const int num_threads : threads) {
    SetNumThreads(num_threads);
    const StepResult now = step->Gradients();
    if (first.empty()) {
      const auto* bytes = static_cast<const char*>(gradients.data());
      first.assign(bytes, bytes + gradients.bytes());
      result = now;
    } else if (std::memcmp(first.data(), gradients.data(), first.size()) != 0 ||
               now.loss != result.loss) {
      status = InternalError("verify ", model::PrecisionName(precision), ": ", num_threads,
                             " threads give other bits than ", threads[0], " (loss ", now.loss,
                             " and ", result.loss, ", gradient norm ", now.grad_norm, " and ",
                             result.grad_norm, ")");
    }
  }
  SetNumThreads(before);
  CRIA_RETURN_IF_ERROR(status);
  return result;
}

Status VerifyClose(const std::string& name, const StepResult& got, const StepResult& want,
                   model::Precision precision) {
  const Tolerance tolerance = ToleranceOf(precision);
  if (IsClose(got.loss, want.loss, tolerance.loss) &&
      IsClose(got.grad_norm, want.grad_norm, tolerance.grad_norm)) {
    return OkStatus();
  }
  return InternalError("verify ", name, ": loss ", got.loss, ", gradient norm ", got.grad_norm,
                       "; expected ", want.loss, " within ", tolerance.loss, " and ",
                       want.grad_norm, " within ", tolerance.grad_norm, " of it");
}

}  // namespace cria::trainer
