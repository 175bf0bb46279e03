#include "tests/unit/trainer/models/gguf_random_model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "model/io/gguf_llama.h"
#include "model/io/weight_source.h"
#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/split_pattern.h"

namespace cria::trainer {
namespace {

using model::StDtype;
using model::WeightInfo;

class RandomSource : public model::WeightSource {
 public:
  RandomSource(const model::LlamaConfig& config, StDtype dtype) : dtype_(dtype) {
    for (const model::LlamaTensor& tensor : model::LlamaTensors(config)) {
      weights_.push_back({tensor.hf_name, dtype, tensor.shape});
    }
    std::sort(weights_.begin(), weights_.end(),
              [](const WeightInfo& a, const WeightInfo& b) { return a.name < b.name; });
  }

  const std::string& path() const override { return path_; }
  const std::vector<WeightInfo>& weights() const override { return weights_; }

  Status ReadRows(const WeightInfo& weight, int64_t begin, int64_t end, StDtype dtype,
                  void* to) const override {
    const Rng rng(7, StreamOf(weight.name));
    const bool is_norm = weight.shape.size() == 1;
    const float scale = is_norm ? 0.1f : 1.5f / std::sqrt(static_cast<float>(weight.columns()));
    std::vector<float> values;
    for (int64_t i = begin * weight.columns(); i < end * weight.columns(); ++i) {
      values.push_back((is_norm ? 1.0f : 0.0f) + scale * rng.Normal(static_cast<uint64_t>(i)));
    }
    // Twice: what a reader may see of a weight is rounded to the weight's own type first.
    const auto n = static_cast<int64_t>(values.size());
    std::vector<char> own(values.size() * sizeof(float));
    CRIA_RETURN_IF_ERROR(
        model::ConvertElements(StDtype::kF32, values.data(), n, dtype_, own.data()));
    return model::ConvertElements(dtype_, own.data(), n, dtype, to);
  }

 private:
  const std::string path_ = "random";
  const StDtype dtype_;
  std::vector<WeightInfo> weights_;
};

}  // namespace

ModelFiles RandomModel(const model::LlamaConfig& config, StDtype dtype) {
  ModelFiles files;
  files.path = "random";
  files.config = config;
  files.weights = std::make_unique<RandomSource>(config, dtype);
  files.tokenizer_status = NotFoundError("random: no tokenizer");
  return files;
}

model::LlamaConfig SmallConfig() {
  model::LlamaConfig config;
  config.layers = 2;
  config.dim = 192;
  config.heads = 6;
  config.kv_heads = 2;
  config.ffn = 256;
  config.vocab = 320;
  config.max_positions = 1024;
  config.rope_scaling = {"llama3", 8, 1, 4, 256};
  config.tied_head = false;
  return config;
}

TokenizerParts SmallTokenizerParts() {
  TokenizerParts parts;
  parts.split_expressions = {kLlama3Pattern};
  for (const uint8_t byte : ByteOfRank()) parts.tokens.emplace_back(1, static_cast<char>(byte));
  const auto find = [&](const std::string& text) {
    const auto found = std::find(parts.tokens.begin(), parts.tokens.end(), text);
    CRIA_CHECK(found != parts.tokens.end(), text);
    return static_cast<int32_t>(found - parts.tokens.begin());
  };
  for (const auto& [left, right] :
       std::vector<std::pair<std::string, std::string>>{{" ", "t"},
                                                        {"h", "e"},
                                                        {" t", "he"},
                                                        {"i", "n"},
                                                        {"in", "g"},
                                                        {"\xc3", "\xa9"},
                                                        {"1", "2"},
                                                        {"12", "3"},
                                                        {" ", " "},
                                                        {"\n", "\n"}}) {
    parts.tokens.push_back(left + right);
    parts.merges.push_back({find(left), find(right), find(left + right)});
  }
  parts.added = {{300, "<|begin_of_text|>", true, false},
                 {301, "<|end_of_text|>", true, false},
                 {302, "<|eot_id|>", true, false},
                 {303, "<tool \xc3\xa9>", false, true}};
  parts.template_prefix = {300};
  return parts;
}

ModelFiles SmallModel(StDtype dtype) {
  ModelFiles files = RandomModel(SmallConfig(), dtype);
  StatusOr<Tokenizer> tokenizer = Tokenizer::FromParts(SmallTokenizerParts(), "small");
  CRIA_CHECK(tokenizer.ok(), Message(tokenizer.status()));
  files.tokenizer = *std::move(tokenizer);
  files.tokenizer_status = OkStatus();
  files.bos_id = 300;
  files.eos_ids = {301, 302};
  files.chat_template = "{% for m in messages %}{{ m['content'] }}<|eot_id|>{% endfor %}";
  return files;
}

}  // namespace cria::trainer
