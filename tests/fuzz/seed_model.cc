#include "tests/fuzz/seed_model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "model/io/half.h"
#include "model/io/safetensors.h"
#include "model/llama/parameters.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/torch_bytes.h"
#include "trainer/models/gguf_model.h"
#include "trainer/tokenizer/bpe_trainer.h"

namespace cria::fuzz {
namespace {

using trainer::Tokenizer;

constexpr int64_t kVocab = 262;

constexpr char kConfigJson[] = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
"hidden_size": 8, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
"num_key_value_heads": 1, "head_dim": 4, "vocab_size": 262, "rms_norm_eps": 1e-05,
"max_position_embeddings": 64, "tie_word_embeddings": false, "hidden_act": "silu",
"bos_token_id": 260, "eos_token_id": 261, "rope_parameters": {"rope_type": "llama3", "factor": 8.0,
"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
"rope_theta": 10000.0}})";

model::LlamaConfig Config() {
  model::LlamaConfig config;
  config.layers = 1;
  config.dim = 8;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.ffn = 32;
  config.vocab = kVocab;
  config.max_positions = 64;
  config.tied_head = false;
  return config;
}

// n values that differ, as bf16.
std::string Values(int64_t n, size_t start) {
  std::string bytes;
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t half =
        model::Bf16FromFloat(std::sin(static_cast<float>(static_cast<int64_t>(start) * 17 + i)));
    bytes += static_cast<char>(half & 0xff);
    bytes += static_cast<char>(half >> 8);
  }
  return bytes;
}

struct Weight {
  std::string name;
  std::vector<int64_t> shape;
  std::string bytes;
};

std::vector<Weight> Weights() {
  const model::ParameterLayout layout(Config());
  std::vector<Weight> weights;
  for (const model::Parameter& p : layout.parameters()) {
    weights.push_back({p.name, p.shape(), Values(p.num_elements(), weights.size())});
  }
  return weights;
}

std::string SafetensorsOf(const std::vector<Weight>& weights, size_t begin, size_t end) {
  std::vector<model::TensorToWrite> tensors;
  for (size_t i = begin; i < end; ++i) {
    tensors.push_back({weights[i].name, model::StDtype::kBF16, weights[i].shape, weights[i].bytes});
  }
  const std::string path = JoinPath(ScratchDir(), "shard.safetensors");
  const auto written = WriteSafetensors(path, tensors, {{"format", "pt"}});
  CRIA_CHECK(written.ok(), Message(written.status()));
  return *ReadFile(path);
}

std::string TokenizerJson() {
  trainer::BpeTrainerOptions options;
  options.vocab_size = kVocab;
  auto trainer = trainer::BpeTrainer::Create(options);
  CRIA_CHECK(trainer.ok());
  trainer->AddText("the llama and the other llama, then the thin thread");
  const auto tokenizer = trainer->Train();
  CRIA_CHECK(tokenizer.ok(), Message(tokenizer.status()));
  return tokenizer->ToJson();
}

constexpr char kShards[2][40] = {"model-00001-of-00002.safetensors",
                                 "model-00002-of-00002.safetensors"};

std::map<std::string, std::string> MakeHfSeed() {
  const std::vector<Weight> weights = Weights();
  const size_t half = weights.size() / 2;
  std::string index = "{\"metadata\": {\"total_size\": ";
  size_t total = 0;
  for (const Weight& w : weights) total += w.bytes.size();
  index += StrCat(total, "}, \"weight_map\": {");
  for (size_t i = 0; i < weights.size(); ++i) {
    index += StrCat(i > 0 ? ", " : "", "\"", weights[i].name, "\": \"", kShards[i >= half], "\"");
  }
  return {{"config.json", kConfigJson},
          {"generation_config.json", R"({"bos_token_id": 260, "eos_token_id": [261, 0]})"},
          {kShards[0], SafetensorsOf(weights, 0, half)},
          {kShards[1], SafetensorsOf(weights, half, weights.size())},
          {"model.safetensors.index.json", index + "}}"},
          {"tokenizer.json", TokenizerJson()},
          {"tokenizer_config.json",
           R"({"chat_template": [{"name": "default", "template": "{{ x }}"}]})"}};
}

std::map<std::string, std::string> MakeMetaSeed() {
  constexpr char kParams[] = R"({"dim": 8, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1,
"vocab_size": 262, "multiple_of": 8, "ffn_dim_multiplier": 1.5, "norm_eps": 1e-05,
"rope_theta": 10000.0})";
  const std::vector<TorchTensor> tensors = {
      {"tok_embeddings.weight", {262, 8}, Values(262 * 8, 1)},
      {"layers.0.attention.wq.weight", {8, 8}, Values(64, 2)},
      {"layers.0.attention.wk.weight", {4, 8}, Values(32, 3)},
      {"layers.0.attention.wv.weight", {4, 8}, Values(32, 4)},
      {"layers.0.attention.wo.weight", {8, 8}, Values(64, 5)},
      {"layers.0.feed_forward.w1.weight", {32, 8}, Values(256, 6)},
      {"layers.0.feed_forward.w3.weight", {32, 8}, Values(256, 7)},
      {"layers.0.feed_forward.w2.weight", {8, 32}, Values(256, 8)},
      {"layers.0.attention_norm.weight", {8}, Values(8, 9)},
      {"layers.0.ffn_norm.weight", {8}, Values(8, 10)},
      {"norm.weight", {8}, Values(8, 11)},
      {"output.weight", {262, 8}, Values(262 * 8, 12)},
  };
  return {{"params.json", kParams},
          {"consolidated.00.pth", TorchBytes(tensors)},
          {"tokenizer.model", TiktokenSeed()}};
}

std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view part = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < part.size() ? static_cast<uint8_t>(part[k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      out += k <= part.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

}  // namespace

const std::map<std::string, std::string>& HfSeed() {
  static const auto* seed = new std::map<std::string, std::string>(MakeHfSeed());
  return *seed;
}

const std::map<std::string, std::string>& MetaSeed() {
  static const auto* seed = new std::map<std::string, std::string>(MakeMetaSeed());
  return *seed;
}

std::string GgufSeed(bool quantised) {
  const std::string dir = FolderWith(HfSeed(), "gguf_seed", "", "");
  const auto files = trainer::OpenModel(dir);
  CRIA_CHECK(files.ok(), Message(files.status()));
  const std::string path = JoinPath(ScratchDir(), "seed.gguf");
  trainer::GgufExportOptions options;
  options.overwrite = true;
  if (quantised) options.type = model::GgmlType::kQ8_0;
  const Status written = ExportGguf(*files, path, options);
  CRIA_CHECK(written.ok(), Message(written));
  return *ReadFile(path);
}

std::string TiktokenSeed() {
  std::string text;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte) {
    text += StrCat(Base64(std::string(1, static_cast<char>(byte))), " ", rank++, "\n");
  }
  for (const char* token : {"th", "the", " the", "ll"}) {
    text += StrCat(Base64(token), " ", rank++, "\n");
  }
  return text;
}

void UseWeights(const model::WeightSource& weights) {
  std::set<std::string> names;
  for (const model::WeightInfo& w : weights.weights()) {
    CRIA_CHECK(names.insert(w.name).second, w.name);
    CRIA_CHECK(weights.Find(w.name) == &w, w.name);
    CRIA_CHECK(w.rows() > 0 && w.columns() > 0, w.name);
    std::vector<float> row(static_cast<size_t>(w.columns()));
    std::string own(static_cast<size_t>(w.columns()) * 8, '\0');
    for (int64_t r = 0; r < w.rows(); ++r) {
      if (!weights.ReadRows(w, r, r + 1, model::StDtype::kF32, row.data()).ok()) break;
      const Status status = weights.ReadRows(w, r, r + 1, w.dtype, own.data());
      CRIA_CHECK(status.ok(), Message(status));
    }
  }
}

void UseTokenizer(const Tokenizer& tokenizer) {
  constexpr std::string_view kText = "the other llama's 1234 \xc3\xa9\xff\r\n\n <|end_of_text|>";
  for (const bool special : {false, true}) {
    std::vector<int32_t> ids;
    tokenizer.Encode(kText, {.parse_special = special, .add_template = special}, &ids);
    for (const int32_t id : ids) CRIA_CHECK(id >= 0 && id < tokenizer.vocab_size(), id);
    Touch(tokenizer.Decode(ids));
  }
}

void UseModel(const trainer::ModelFiles& files) {
  const Status valid = Validate(files.config, files.path);
  CRIA_CHECK(valid.ok(), Message(valid));
  CRIA_CHECK(files.weights != nullptr);
  UseWeights(*files.weights);
  if (!files.tokenizer) return;
  CRIA_CHECK_LE(files.tokenizer->vocab_size(), files.config.vocab);
  UseTokenizer(*files.tokenizer);
}

std::string FolderWith(const std::map<std::string, std::string>& seed, const std::string& dir,
                       std::string_view name, std::string_view bytes) {
  // What is there already is not written again: nine of ten files.
  static auto* const on_disk = new std::map<std::string, std::string>();
  CRIA_CHECK(MakeDirs(JoinPath(ScratchDir(), dir)).ok());
  for (const auto& [file, content] : seed) {
    const std::string path = JoinPath(dir, file);
    const std::string_view wanted = file == name ? bytes : std::string_view(content);
    const auto [there, is_new] = on_disk->try_emplace(path);
    if (!is_new && there->second == wanted) continue;
    ScratchFile(path, wanted);
    there->second = std::string(wanted);
  }
  return JoinPath(ScratchDir(), dir);
}

Status ReadFolder(const std::map<std::string, std::string>& seed, const std::string& dir,
                  std::string_view input) {
  const FileChoice choice = ChooseFile(input, seed.size());
  const std::string name = std::next(seed.begin(), static_cast<int64_t>(choice.index))->first;
  const std::string path = FolderWith(seed, dir, name, choice.bytes);
  const StatusOr<trainer::ModelFiles> files = trainer::OpenModel(path);
  if (!files.ok()) return NamesPlace(files.status(), path);
  UseModel(*files);
  return OkStatus();
}

std::vector<std::string> FolderSeeds(const std::map<std::string, std::string>& seed) {
  std::vector<std::string> inputs;
  for (const auto& [file, content] : seed) inputs.push_back(InputFor(inputs.size(), content));
  return inputs;
}

}  // namespace cria::fuzz
