// `cria check tokenizer DIR...`: is our tokenizer the same as the one that wrote the cases?
//
//   return RunTokenizerCheck({"../shared/data/golden/tokenizer_1"});
//
// A folder holds tokenizer.json and cases.jsonl, one object a line: "text", "ids" (with special
// tokens parsed, without the template), "decoded" (the ids' text, special tokens included), and
// optionally "ids_with_bos": true when the template puts just begin-of-text before the ids.
// Prints to stdout a line per folder and quantity, with the first differences below it.

#ifndef CRIA_TRAINER_CHECK_TOKENIZER_CHECK_H_
#define CRIA_TRAINER_CHECK_TOKENIZER_CHECK_H_

#include <string>
#include <vector>

namespace cria::trainer {

// The exit status: 0 all equal, 1 something differs or can't be read, 2 no folder given.
int RunTokenizerCheck(const std::vector<std::string>& dirs);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECK_TOKENIZER_CHECK_H_
