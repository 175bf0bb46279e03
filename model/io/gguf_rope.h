// Llama 3.1's scaling of rotary frequencies as GGUF keeps it: a tensor of divisors.
//
//   rope_freqs.weight, F32 [K/2]: frequency i is divided by its element: 1 where it is kept, the
//   factor where the wavelength is long, between them 1 / ((1 - s) / factor + s).
//
//   std::vector<float> divisors = RopeDivisors(config);                 // to write
//   CRIA_ASSIGN_OR_RETURN(config.rope_scaling, ScalingFromDivisors(divisors, config, hint));
//
// The file doesn't name factor, low, high and original, which Hugging Face's config.json does, so
// the reader looks for values that give the tensor again. Several can (only the ratios of low, high
// and original count, and of frequencies that are all kept nothing can be said): round numbers
// that people use come first. Thread-safe.
// Source: transformers' modeling_rope_utils.py for the formula.

#ifndef CRIA_MODEL_IO_GGUF_ROPE_H_
#define CRIA_MODEL_IO_GGUF_ROPE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/llama/config.h"

namespace cria::model {

// K/2 divisors of a config whose rope_scaling.type is "llama3".
std::vector<float> RopeDivisors(const LlamaConfig& config);

// The llama3 scaling that gives these divisors, to fp32's last digits, for the frequencies of
// `config` (rope_theta, head size; max_positions is a guess for original). `original_hint`: what
// the file says of original, 0 when it doesn't. InvalidArgument when none is found, with the
// divisors' range. Cost: some thousand evaluations of K/2 numbers.
StatusOr<RopeScaling> ScalingFromDivisors(std::span<const float> divisors,
                                          const LlamaConfig& config, int64_t original_hint);

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_GGUF_ROPE_H_
