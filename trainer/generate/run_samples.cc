#include "trainer/generate/run_samples.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "model/llama/decoder.h"
#include "trainer/generate/generator.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

// As documents begin in training data, also where the tokenizer's template says nothing.
std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<int32_t> ids;
  if (tokenizer.bos_id()) ids.push_back(*tokenizer.bos_id());
  tokenizer.Encode(text, &ids);
  return ids;
}

}  // namespace

StatusOr<std::vector<std::string>> SampleRun(const std::string& checkpoint_dir,
                                             const Tokenizer& tokenizer,
                                             const RunSampleOptions& options, model::Ops* ops) {
  CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenModel(checkpoint_dir));
  std::vector<std::string> texts = options.prompts;
  std::vector<Prompt> prompts;
  std::vector<size_t> places;  // of prompts in texts
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<int32_t> ids = Encode(tokenizer, texts[i]);
    if (ids.empty() || static_cast<int64_t>(ids.size()) > options.max_positions) continue;
    prompts.push_back({.ids = std::move(ids), .index = i});
    places.push_back(i);
  }
  if (prompts.empty()) return texts;
  const auto count = static_cast<int64_t>(prompts.size());
  CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<model::LlamaDecoder> decoder,
                        model::LlamaDecoder::Load(files.config,
                                                  {.max_sequences = std::min<int64_t>(count, 8),
                                                   .max_positions = options.max_positions},
                                                  *files.weights, ops));
  Generator generator(decoder.get(), &tokenizer, RealClock());
  GenerateOptions generate = {.sampling = options.sampling, .max_tokens = options.max_tokens};
  if (tokenizer.eos_id()) generate.eos_ids = {*tokenizer.eos_id()};
  CRIA_ASSIGN_OR_RETURN(const std::vector<Generation> results, generator.Run(prompts, generate));
  for (size_t i = 0; i < results.size(); ++i) texts[places[i]] += results[i].text;
  return texts;
}

}  // namespace cria::trainer
