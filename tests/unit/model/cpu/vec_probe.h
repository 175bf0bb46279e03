// The vector functions of model/cpu/vec.h behind plain pointers, so that a test compiled for any
// CPU can call the copy for each instruction set. Each works on `lanes` elements.

#ifndef CRIA_TESTS_UNIT_MODEL_CPU_VEC_PROBE_H_
#define CRIA_TESTS_UNIT_MODEL_CPU_VEC_PROBE_H_

#include "model/tensor.h"

namespace cria::model::cpu {

struct VecProbe {
  int lanes;
  void (*exp)(const float*, float*);
  void (*sigmoid)(const float*, float*);
  void (*to_bf16)(const float*, BF16*);
  void (*from_bf16)(const BF16*, float*);
  void (*to_bf16_one)(const float*, BF16*);
  float (*sum_lanes)(const float*);
  float (*max_lanes)(const float*);
};

namespace generic {
const VecProbe& Probe();
}
namespace avx2 {
const VecProbe& Probe();
}
namespace avx512 {
const VecProbe& Probe();
}

}  // namespace cria::model::cpu

#endif  // CRIA_TESTS_UNIT_MODEL_CPU_VEC_PROBE_H_
