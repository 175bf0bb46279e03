// Rotary frequencies and their tables of cosines and sines.
//
// Computed in double from integers: an angle held in bf16 or fp32 steps is wrong at long positions.
// The three kinds of Llama 3.x: default, linear, llama3 (Llama 3.1's piecewise scaling).
// Thread-safe.

#ifndef CRIA_MODEL_LLAMA_ROPE_TABLE_H_
#define CRIA_MODEL_LLAMA_ROPE_TABLE_H_

#include <cstdint>
#include <vector>

#include "model/llama/config.h"
#include "model/tensor.h"

namespace cria::model {

// head_dim / 2 frequencies in radians a position.
std::vector<double> RopeFrequencies(const LlamaConfig& config);

// Fills cosines and sines, [positions, head_dim / 2] fp32 each.
void FillRopeTable(const LlamaConfig& config, const Tensor& cosines, const Tensor& sines);

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_ROPE_TABLE_H_
