#include "trainer/models/hf_side_files.h"

#include <optional>
#include <utility>

#include "base/json.h"

namespace cria::trainer {
namespace {

using model::StDtype;

StatusOr<std::string> TorchName(StDtype dtype) {
  switch (dtype) {
    case StDtype::kF32:
      return std::string("float32");
    case StDtype::kF16:
      return std::string("float16");
    case StDtype::kBF16:
      return std::string("bfloat16");
    case StDtype::kF64:
      return std::string("float64");
    case StDtype::kF8E4M3:
      return std::string("float8_e4m3fn");
    case StDtype::kF8E5M2:
      return std::string("float8_e5m2");
    default:
      return UnimplementedError("weights of type ", model::StDtypeName(dtype),
                                " have no name in config.json");
  }
}

StatusOr<std::string> Dump(const Json& json) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(json, 2));
  return text + "\n";
}

Json OptionalId(const std::optional<int32_t>& id) { return id ? Json(*id) : Json(); }

// One id as a number, several as a list, none as null.
Json Ids(const std::vector<int32_t>& ids) {
  if (ids.empty()) return Json();
  return ids.size() == 1 ? Json(ids[0]) : Json(ids);
}

Json RopeScalingJson(const model::RopeScaling& rope) {
  if (rope.type == "default") return Json();
  Json json = {{"factor", rope.factor}};
  if (rope.type == "llama3") {
    json["high_freq_factor"] = rope.high_freq_factor;
    json["low_freq_factor"] = rope.low_freq_factor;
    json["original_max_position_embeddings"] = rope.original_max_positions;
  }
  json["rope_type"] = rope.type;
  return json;
}

StatusOr<std::string> ConfigJson(const ModelFiles& files, StDtype dtype) {
  const model::LlamaConfig& c = files.config;
  CRIA_ASSIGN_OR_RETURN(const std::string torch_dtype, TorchName(dtype));
  Json json;
  json["architectures"] = Json::array({"LlamaForCausalLM"});
  json["attention_bias"] = false;
  json["attention_dropout"] = 0.0;
  json["bos_token_id"] = OptionalId(files.bos_id);
  json["eos_token_id"] = Ids(files.eos_ids);
  json["head_dim"] = c.HeadDim();
  json["hidden_act"] = "silu";
  json["hidden_size"] = c.dim;
  json["initializer_range"] = 0.02;
  json["intermediate_size"] = c.ffn;
  json["max_position_embeddings"] = c.max_positions;
  json["mlp_bias"] = false;
  json["model_type"] = "llama";
  json["num_attention_heads"] = c.heads;
  json["num_hidden_layers"] = c.layers;
  json["num_key_value_heads"] = c.kv_heads;
  json["pretraining_tp"] = 1;
  json["rms_norm_eps"] = c.norm_eps;
  json["rope_scaling"] = RopeScalingJson(c.rope_scaling);
  json["rope_theta"] = c.rope_theta;
  json["tie_word_embeddings"] = c.tied_head;
  json["torch_dtype"] = torch_dtype;
  json["use_cache"] = true;
  json["vocab_size"] = c.vocab;
  return Dump(json);
}

// The content of a token, where it is one of the tokenizer's.
Json TokenText(const ModelFiles& files, const std::optional<int32_t>& id) {
  if (!id) return Json();
  const std::string_view text = files.tokenizer->TokenBytes(*id);
  return text.empty() ? Json() : Json(std::string(text));
}

Status AddTokenizerFiles(const ModelFiles& files, std::map<std::string, std::string>* out) {
  const std::optional<int32_t> eos =
      files.eos_ids.empty() ? std::nullopt : std::optional(files.eos_ids[0]);
  Json special;
  for (const auto& [key, text] : {std::pair("bos_token", TokenText(files, files.bos_id)),
                                  std::pair("eos_token", TokenText(files, eos))}) {
    if (!text.is_null()) special[key] = text;
  }
  if (special.is_null()) special = Json::object();
  // The class that takes tokenizer.json as it is.
  Json config = special;
  config["clean_up_tokenization_spaces"] = false;
  config["model_input_names"] = {"input_ids", "attention_mask"};
  config["model_max_length"] = files.config.max_positions;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (!files.chat_template.empty()) config["chat_template"] = files.chat_template;
  (*out)["tokenizer.json"] = files.tokenizer->ToJson();
  CRIA_ASSIGN_OR_RETURN((*out)["tokenizer_config.json"], Dump(config));
  CRIA_ASSIGN_OR_RETURN((*out)["special_tokens_map.json"], Dump(special));
  return OkStatus();
}

}  // namespace

StatusOr<std::map<std::string, std::string>> MakeHfSideFiles(const ModelFiles& files,
                                                             StDtype dtype) {
  std::map<std::string, std::string> out;
  CRIA_ASSIGN_OR_RETURN(out["config.json"], ConfigJson(files, dtype));
  Json generation;
  generation["bos_token_id"] = OptionalId(files.bos_id);
  generation["eos_token_id"] = Ids(files.eos_ids);
  CRIA_ASSIGN_OR_RETURN(out["generation_config.json"], Dump(generation));
  if (files.tokenizer) CRIA_RETURN_IF_ERROR(AddTokenizerFiles(files, &out));
  return out;
}

StatusOr<std::string> WithDtype(const std::string& config_json, StDtype dtype,
                                const std::string& where) {
  CRIA_ASSIGN_OR_RETURN(Json json, ParseJson(config_json, where));
  CRIA_ASSIGN_OR_RETURN(const std::string name, TorchName(dtype));
  bool found = false;
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!json.contains(key)) continue;
    json[key] = name;
    found = true;
  }
  if (!found) json["torch_dtype"] = name;
  return Dump(json);
}

}  // namespace cria::trainer
