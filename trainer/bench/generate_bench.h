// `cria bench generate`: tokens a second of prompts and of decoding, next to llama.cpp and to what
// the memory's speed allows.
//
//   CRIA_RETURN_IF_ERROR(RunGenerateBench({.peer = "/path/to/python"}, stdout, stderr));
//
// A model of random weights (110 M parameters) runs forward in fp32 and in bf16. Before anything is
// timed, decoding token by token must give the bits of the whole prompt in one call, and the peer's
// logits of the same weights must agree. Then each round runs everybody once, one after another:
// ratios are medians over rounds of the same round's times.
//
// Decoding reads every weight once a token, so its bound is the measured rate of reading memory
// over the bytes of weights and cache.

#ifndef CRIA_TRAINER_BENCH_GENERATE_BENCH_H_
#define CRIA_TRAINER_BENCH_GENERATE_BENCH_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/tensor.h"

namespace cria::trainer {

struct GenerateBenchOptions {
  std::string peer;  // a Python interpreter with llama-cpp-python; empty: no peer
  std::vector<model::DType> types = {model::DType::kF32, model::DType::kBF16};
  std::vector<int> threads = {1, 2};
  int64_t prompt = 128;  // tokens
  int64_t tokens = 32;   // decoded after the prompt
  int reps = 7;
  bool tiny = false;  // a tiny model, for a test of the benchmark
  bool json = false;
};

// The table (or JSON) to `out`, all else to `notes`. DataLoss when something does not verify.
Status RunGenerateBench(const GenerateBenchOptions& options, std::FILE* out, std::FILE* notes);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_GENERATE_BENCH_H_
