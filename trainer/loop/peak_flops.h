// The machine's matrix rate, for model FLOPs utilisation (MFU). Takes about 0.3 s.

#ifndef CRIA_TRAINER_LOOP_PEAK_FLOPS_H_
#define CRIA_TRAINER_LOOP_PEAK_FLOPS_H_

#include "base/clock.h"
#include "model/ops.h"
#include "model/tensor.h"

namespace cria::trainer {

// FLOP/s of the best of several square products of operands of `type` on all threads: what the
// backend's GEMM reaches here and now, not a data sheet's number. FP8 runs as bf16 on a CPU.
double MeasurePeakFlops(model::Ops* ops, model::DType type, Clock* clock);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_PEAK_FLOPS_H_
