// `cria bench tokenizer`: how fast we encode and learn, next to tiktoken and tokenizers.
//
//   TokenizerBenchOptions options;
//   options.peer_python = "/path/to/python";    // with tiktoken and tokenizers installed
//   CRIA_RETURN_IF_ERROR(RunTokenizerBench(options));
//
// A vocabulary is learned from the text; before anything is timed, the text must round-trip line by
// line and as a whole, and the peers' ids for it must equal ours. Then each round measures
// everybody once, one after another, so that a slow minute of the machine hits all; medians are
// compared by ratio.

#ifndef CRIA_TRAINER_BENCH_TOKENIZER_BENCH_H_
#define CRIA_TRAINER_BENCH_TOKENIZER_BENCH_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace cria::trainer {

struct TokenizerBenchOptions {
  std::string text_path;    // empty: the King James Bible (trainer/data/bible.h)
  std::string peer_python;  // empty: no peers
  int32_t vocab_size = 4096;
  int num_rounds = 5;
  bool is_json = false;  // a list of objects instead of the table
};

// Prints to stdout. Errors: DataLoss when a round trip or a peer's ids differ; what reading the
// text or training says. A peer that can't be imported or fails is named and left out.
Status RunTokenizerBench(const TokenizerBenchOptions& options);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_TOKENIZER_BENCH_H_
