// Which layouts a model allows on so many ranks, and layouts as text.
//
//   for (const model::Layout& layout : AllLayouts(config, /*seq=*/48, {1, 2, 4, 8})) ...
//   CRIA_ASSIGN_OR_RETURN(auto layouts, ParseLayouts("tp2,cp2; pp2,dp2,gradients,chunks2"));
//
// Pure functions; thread-safe.

#ifndef CRIA_TRAINER_CHECK_LAYOUT_LIST_H_
#define CRIA_TRAINER_CHECK_LAYOUT_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/llama/config.h"
#include "model/parallel/mesh.h"

namespace cria::trainer {

// All that model::CheckLayout allows: each way to write each number of ranks as tp x cp x pp x dp;
// each kind of sharding where ranks share weights; pipelines with one and two runs of layers a rank
// and with short ends. By number of ranks in the order given, then tp, cp, pp from few to many.
std::vector<model::Layout> AllLayouts(const model::LlamaConfig& config, int64_t seq,
                                      const std::vector<int>& ranks);

// Layouts with semicolons between them, of words with commas or spaces: tp2, cp2, pp2, dp2;
// none, optimizer, gradients or weights, what is sharded; chunks2, group4, short. InvalidArgument
// names the word.
StatusOr<std::vector<model::Layout>> ParseLayouts(const std::string& text);

// One of them in the form that ParseLayouts reads: "tp2,pp2,gradients,chunks2"; "one" where nothing
// is divided (ParseLayouts knows it too).
std::string FormatLayout(const model::Layout& layout);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECK_LAYOUT_LIST_H_
