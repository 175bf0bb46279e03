// The two-norm of a model's gradients over all ranks, each element counted once.
//
//   GradientNormMeter meter(&buffers, ops);
//   CRIA_ASSIGN_OR_RETURN(const GradientNorm norm, meter.Compute());   // after FinishGradients
//
// A rank counts its share of what its replicas hold (ParameterParts::counted) of the parameters
// that are not counted elsewhere. Squares are summed in double, then over ranks in rank order, so
// that all ranks have the same bits. Gradients that came from fixed point are summed without
// regard to order: each square is exact in double, rounded to a multiple of 2^-62 and added as a
// 128-bit integer. Then the norm has the same bits in every layout.
//
// Single-threaded; all ranks of the world call Compute. Errors are the communicator's.

#ifndef CRIA_TRAINER_OPTIMIZER_GRADIENT_NORM_H_
#define CRIA_TRAINER_OPTIMIZER_GRADIENT_NORM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/ops.h"
#include "model/parallel/parameter_buffers.h"

namespace cria::trainer {

struct GradientNorm {
  double value = 0;
  // The first parameter of the model whose gradient is not finite; empty when all are.
  std::string first_non_finite;
  bool finite() const { return first_non_finite.empty(); }
};

class GradientNormMeter {
 public:
  // `buffers` and `ops` outlive it.
  GradientNormMeter(const model::ParameterBuffers* buffers, model::Ops* ops);

  StatusOr<GradientNorm> Compute();

 private:
  // What this rank counts of one parameter.
  struct Counted {
    const model::Parameter* parameter;
    int block;
    int64_t begin, end;  // of the block's updated part
  };
  // A sum of squares, in one of two forms: a double's bits in `low`, or 128 bits.
  struct Sum {
    int64_t low = 0, high = 0;
    int64_t first_bad = 0;  // index of the first parameter that is not finite; none: kNone
  };
  static constexpr int64_t kNone = INT64_MAX;

  Sum Own() const;
  GradientNorm Total(const std::vector<Sum>& sums) const;
  // The name of the parameter of that index, from the first rank that counted it.
  StatusOr<std::string> NameOf(int64_t index, const std::vector<Sum>& sums) const;
  const model::Parameter* Find(int64_t index) const;

  const model::ParameterBuffers* const buffers_;
  model::Ops* const ops_;
  std::vector<Counted> counted_;  // in the model's order
  std::vector<Sum> sums_;         // by rank
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_OPTIMIZER_GRADIENT_NORM_H_
