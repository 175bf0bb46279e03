#include "trainer/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/split_pattern.h"

namespace cria::trainer {
namespace {

// A table by id is kept, so ids may leave gaps, but not out of proportion to the file.
constexpr int64_t kIdsPerTokenMax = 4;
constexpr int64_t kIdsMin = 1 << 16;

// One document on its way in. Each method reads one of its top-level keys.
class Reader {
 public:
  Reader(const Json& root, const std::string& name) : root_(root), name_(name) {}

  StatusOr<TokenizerParts> Read() {
    if (!root_.is_object()) return DataLossError(name_, ": not a JSON object");
    CRIA_RETURN_IF_ERROR(ReadModel());
    CRIA_RETURN_IF_ERROR(ReadAddedTokens());
    if (const Json& normalizer = Get(root_, "normalizer"); !normalizer.is_null()) {
      return UnimplementedError(name_, ": normalizer ", TypeOf(normalizer),
                                ": byte-level BPE has none");
    }
    CRIA_RETURN_IF_ERROR(ReadPreTokenizer(Get(root_, "pre_tokenizer")));
    CRIA_RETURN_IF_ERROR(ReadPostProcessor(Get(root_, "post_processor")));
    CRIA_RETURN_IF_ERROR(ReadDecoder(Get(root_, "decoder")));
    return std::move(parts_);
  }

 private:
  // The member, or null when there is none.
  static const Json& Get(const Json& object, const char* key) {
    static const Json null;
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
  }
  static std::string TypeOf(const Json& component) {
    const Json& type = Get(component, "type");
    return type.is_string() ? StrCat("\"", type.get<std::string>(), "\"") : "of unknown type";
  }
  static bool IsType(const Json& component, std::string_view type) {
    return Get(component, "type") == type;
  }
  // The components of a Sequence; a component that is none stands for itself.
  static std::vector<const Json*> Flatten(const Json& component, const char* list_key) {
    std::vector<const Json*> out;
    if (component.is_null()) return out;
    if (!IsType(component, "Sequence")) return {&component};
    for (const Json& item : Get(component, list_key)) {
      for (const Json* nested : Flatten(item, list_key)) out.push_back(nested);
    }
    return out;
  }

  StatusOr<bool> Bool(const Json& object, const char* key, bool fallback) {
    return JsonGetOr<bool>(object, key, fallback, name_);
  }

  Status ReadModel() {
    const Json& model = Get(root_, "model");
    if (!model.is_object()) return DataLossError(name_, ": model: missing");
    // Files of old have no type; their merges tell.
    if (!Get(model, "type").is_null() && !IsType(model, "BPE")) {
      return UnimplementedError(name_, ": model.type ", TypeOf(model), ": only BPE is understood");
    }
    for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = Get(model, affix);
      if (!value.is_null() && value != "") {
        return UnimplementedError(name_, ": model.", affix, ": byte-level BPE has none");
      }
    }
    if (const Json& dropout = Get(model, "dropout"); !dropout.is_null() && dropout != 0) {
      return UnimplementedError(name_, ": model.dropout: encoding would be random");
    }
    CRIA_ASSIGN_OR_RETURN(const bool byte_fallback, Bool(model, "byte_fallback", false));
    if (byte_fallback) {
      return UnimplementedError(name_, ": model.byte_fallback: not a byte-level BPE");
    }
    CRIA_ASSIGN_OR_RETURN(parts_.ignore_merges, Bool(model, "ignore_merges", false));
    CRIA_RETURN_IF_ERROR(ReadVocab(Get(model, "vocab")));
    return ReadMerges(Get(model, "merges"));
  }

  StatusOr<int32_t> CheckId(const Json& value, const std::string& token) {
    const int64_t limit = std::max<int64_t>(
        kIdsMin, kIdsPerTokenMax * static_cast<int64_t>(Get(Get(root_, "model"), "vocab").size()));
    if (!value.is_number_integer() || value < 0 || value >= limit) {
      return DataLossError(name_, ": token \"", token, "\": its id is ", value.dump(-1, ' ', true),
                           ", expected an integer in [0, ", limit, ")");
    }
    return value.get<int32_t>();
  }

  Status ReadVocab(const Json& vocab) {
    if (!vocab.is_object() || vocab.empty()) {
      return DataLossError(name_, ": model.vocab: missing or empty");
    }
    vocab_.reserve(vocab.size());
    std::string bytes;
    for (const auto& [token, value] : vocab.items()) {
      CRIA_ASSIGN_OR_RETURN(const int32_t id, CheckId(value, token));
      if (static_cast<size_t>(id) >= parts_.tokens.size()) parts_.tokens.resize(id + 1);
      if (!parts_.tokens[id].empty()) {
        return DataLossError(name_, ": id ", id, " belongs to two tokens, \"",
                             ToAlphabet(parts_.tokens[id]), "\" and \"", token, "\"");
      }
      if (token.empty()) return DataLossError(name_, ": id ", id, " is an empty token");
      vocab_.emplace(token, id);
      // What is outside of the alphabet may still be the content of an added token.
      if (FromAlphabet(token, &bytes)) {
        parts_.tokens[id] = bytes;
      } else {
        raw_tokens_.emplace(id, token);
      }
    }
    return OkStatus();
  }

  StatusOr<int32_t> MergeToken(std::string_view token, size_t rank) {
    const auto found = vocab_.find(std::string(token));
    if (found == vocab_.end()) {
      return DataLossError(name_, ": model.merges[", rank, "]: \"", token,
                           "\" is not in the vocabulary");
    }
    return found->second;
  }

  // "a b" or ["a", "b"]; both occur, also within one family of models.
  Status ReadMerges(const Json& merges) {
    if (!merges.is_array()) return DataLossError(name_, ": model.merges: missing or no list");
    parts_.merges.reserve(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const Json& merge = merges[rank];
      std::string left, right;
      if (merge.is_string()) {
        const std::string both = merge.get<std::string>();
        const size_t space = both.find(' ');
        if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos) {
          return DataLossError(name_, ": model.merges[", rank, "]: \"", both,
                               "\" is not two tokens with a space between");
        }
        left = both.substr(0, space);
        right = both.substr(space + 1);
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        left = merge[0].get<std::string>();
        right = merge[1].get<std::string>();
      } else {
        return DataLossError(name_, ": model.merges[", rank, "]: not a pair of tokens");
      }
      CRIA_ASSIGN_OR_RETURN(const int32_t left_id, MergeToken(left, rank));
      CRIA_ASSIGN_OR_RETURN(const int32_t right_id, MergeToken(right, rank));
      CRIA_ASSIGN_OR_RETURN(const int32_t result_id, MergeToken(left + right, rank));
      parts_.merges.push_back({left_id, right_id, result_id});
    }
    return OkStatus();
  }

  Status ReadAddedTokens() {
    const Json& list = Get(root_, "added_tokens");
    if (!list.is_null() && !list.is_array()) {
      return DataLossError(name_, ": added_tokens: not a list");
    }
    for (const Json& item : list) {
      AddedToken token;
      CRIA_ASSIGN_OR_RETURN(token.content, JsonGet<std::string>(item, "content", name_));
      CRIA_ASSIGN_OR_RETURN(token.id, CheckId(Get(item, "id"), token.content));
      CRIA_ASSIGN_OR_RETURN(token.special, Bool(item, "special", false));
      CRIA_ASSIGN_OR_RETURN(token.normalized, Bool(item, "normalized", false));
      for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
        CRIA_ASSIGN_OR_RETURN(const bool is_set, Bool(item, flag, false));
        if (is_set) {
          return UnimplementedError(name_, ": added token \"", token.content, "\": ", flag,
                                    " is not understood");
        }
      }
      const auto in_vocab = vocab_.find(token.content);
      if (in_vocab != vocab_.end() && in_vocab->second != token.id) {
        return DataLossError(name_, ": added token \"", token.content, "\" has id ", token.id,
                             ", but ", in_vocab->second, " in the vocabulary");
      }
      if (const auto raw = raw_tokens_.find(token.id);
          raw != raw_tokens_.end() && raw->second == token.content) {
        raw_tokens_.erase(raw);
      }
      // The same string in the vocabulary is the content itself, not in the byte alphabet.
      if (in_vocab != vocab_.end()) parts_.tokens[token.id].clear();
      added_ids_.emplace(token.content, token.id);
      parts_.added.push_back(std::move(token));
    }
    if (!raw_tokens_.empty()) {
      const auto first = std::min_element(raw_tokens_.begin(), raw_tokens_.end());
      return DataLossError(name_, ": token ", first->first, " \"", first->second,
                           "\" has characters that stand for no byte");
    }
    return OkStatus();
  }

  Status ReadPreTokenizer(const Json& pre_tokenizer) {
    bool has_byte_level = false;
    for (const Json* step : Flatten(pre_tokenizer, "pretokenizers")) {
      if (has_byte_level) {
        return UnimplementedError(name_, ": pre_tokenizer ", TypeOf(*step), " after ByteLevel");
      }
      if (IsType(*step, "Split")) {
        CRIA_RETURN_IF_ERROR(ReadSplit(*step));
      } else if (IsType(*step, "ByteLevel")) {
        has_byte_level = true;
        CRIA_ASSIGN_OR_RETURN(const bool add_space, Bool(*step, "add_prefix_space", true));
        if (add_space) {
          return UnimplementedError(name_, ": pre_tokenizer ByteLevel with add_prefix_space");
        }
        CRIA_ASSIGN_OR_RETURN(const bool use_regex, Bool(*step, "use_regex", true));
        if (use_regex) parts_.split_expressions.push_back(kGpt2Pattern);
      } else {
        return UnimplementedError(name_, ": pre_tokenizer ", TypeOf(*step), " is not understood");
      }
    }
    if (!has_byte_level) {
      return UnimplementedError(name_, ": pre_tokenizer without ByteLevel: not a byte-level BPE");
    }
    return OkStatus();
  }

  Status ReadSplit(const Json& split) {
    const Json& behavior = Get(split, "behavior");
    CRIA_ASSIGN_OR_RETURN(const bool invert, Bool(split, "invert", false));
    if (behavior != "Isolated" || invert) {
      return UnimplementedError(name_, ": pre_tokenizer Split with behavior ",
                                behavior.dump(-1, ' ', true), invert ? ", inverted" : "",
                                ": only Isolated is understood");
    }
    const Json& regex = Get(Get(split, "pattern"), "Regex");
    if (!regex.is_string()) {
      return UnimplementedError(name_, ": pre_tokenizer Split without pattern.Regex");
    }
    parts_.split_expressions.push_back(regex.get<std::string>());
    return OkStatus();
  }

  Status ReadPostProcessor(const Json& post_processor) {
    for (const Json* step : Flatten(post_processor, "processors")) {
      if (IsType(*step, "TemplateProcessing")) {
        CRIA_RETURN_IF_ERROR(ReadTemplate(Get(*step, "single")));
      } else if (!IsType(*step, "ByteLevel")) {  // it moves offsets alone, which we don't give
        return UnimplementedError(name_, ": post_processor ", TypeOf(*step), " is not understood");
      }
    }
    return OkStatus();
  }

  Status ReadTemplate(const Json& single) {
    bool after_text = false;
    for (const Json& item : single) {
      const Json& special = Get(item, "SpecialToken");
      if (special.is_null()) {
        if (Get(item, "Sequence").is_null() || after_text) {
          return DataLossError(name_,
                               ": post_processor.single: expected one Sequence among "
                               "SpecialTokens");
        }
        after_text = true;
        continue;
      }
      CRIA_ASSIGN_OR_RETURN(const std::string content, JsonGet<std::string>(special, "id", name_));
      const auto found = added_ids_.find(content);
      if (found == added_ids_.end()) {
        return DataLossError(name_, ": post_processor: \"", content, "\" is no added token");
      }
      (after_text ? parts_.template_suffix : parts_.template_prefix).push_back(found->second);
    }
    return OkStatus();
  }

  Status ReadDecoder(const Json& decoder) {
    const std::vector<const Json*> steps = Flatten(decoder, "decoders");
    if (steps.size() == 1 && IsType(*steps[0], "ByteLevel")) return OkStatus();
    return UnimplementedError(name_, ": decoder: expected ByteLevel alone");
  }

  const Json& root_;
  const std::string& name_;
  TokenizerParts parts_;
  std::unordered_map<std::string, int32_t> vocab_;  // as written
  std::unordered_map<std::string, int32_t> added_ids_;
  std::unordered_map<int32_t, std::string> raw_tokens_;  // not in the byte alphabet
};

std::string Quote(std::string_view text) { return Json(std::string(text)).dump(); }

const char* BoolName(bool value) { return value ? "true" : "false"; }

std::string AddedTokensJson(const TokenizerParts& parts) {
  std::string out = "[";
  for (const AddedToken& token : parts.added) {
    out += StrCat(out.size() > 1 ? "," : "", "\n    {\"id\": ", token.id,
                  ", \"content\": ", Quote(token.content),
                  ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                  "\"normalized\": ",
                  BoolName(token.normalized), ", \"special\": ", BoolName(token.special), "}");
  }
  return out + (parts.added.empty() ? "]" : "\n  ]");
}

std::string PreTokenizerJson(const TokenizerParts& parts) {
  std::string out = R"({"type": "Sequence", "pretokenizers": [)";
  for (const std::string& expression : parts.split_expressions) {
    out += StrCat("\n    {\"type\": \"Split\", \"pattern\": {\"Regex\": ", Quote(expression),
                  "}, \"behavior\": \"Isolated\", \"invert\": false},");
  }
  return out + R"(
    {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
  ]})";
}

// `sequence`: the items around "A" or "B", each of one type id.
std::string TemplateItems(const TokenizerParts& parts, const char* sequence, int type_id) {
  std::string out;
  const auto add = [&](std::string_view kind, const std::string& id) {
    out += StrCat(out.empty() ? "" : ", ", "{\"", kind, "\": {\"id\": ", Quote(id),
                  ", \"type_id\": ", type_id, "}}");
  };
  for (const int32_t id : parts.template_prefix) add("SpecialToken", parts.tokens[id]);
  add("Sequence", sequence);
  for (const int32_t id : parts.template_suffix) add("SpecialToken", parts.tokens[id]);
  return out;
}

std::string PostProcessorJson(const TokenizerParts& parts) {
  const std::string byte_level =
      R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, )"
      R"("use_regex": true})";
  std::vector<int32_t> ids = parts.template_prefix;
  ids.insert(ids.end(), parts.template_suffix.begin(), parts.template_suffix.end());
  if (ids.empty()) return byte_level;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::string special;
  for (const int32_t id : ids) {
    const std::string content = Quote(parts.tokens[id]);
    special += StrCat(special.empty() ? "" : ", ", content, ": {\"id\": ", content, ", \"ids\": [",
                      id, "], \"tokens\": [", content, "]}");
  }
  const std::string single = TemplateItems(parts, "A", 0);
  return StrCat("{\"type\": \"Sequence\", \"processors\": [\n    ", byte_level,
                ",\n    {\"type\": \"TemplateProcessing\", \"single\": [", single, "], \"pair\": [",
                single, ", ", TemplateItems(parts, "B", 1), "], \"special_tokens\": {", special,
                "}}\n  ]}");
}

std::string ModelJson(const TokenizerParts& parts) {
  std::string out = StrCat(
      R"({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
    "ignore_merges": )",
      BoolName(parts.ignore_merges), ",\n    \"vocab\": {");
  const std::vector<bool> added_only = parts.IsAddedOnly();
  bool is_first = true;
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    if (parts.tokens[id].empty() || added_only[id]) continue;
    out += StrCat(is_first ? "" : ",", "\n", Quote(ToAlphabet(parts.tokens[id])), ": ", id);
    is_first = false;
  }
  out += "\n    },\n    \"merges\": [";
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const BpeMerge& merge = parts.merges[rank];
    out += StrCat(rank == 0 ? "" : ",", "\n",
                  Quote(StrCat(ToAlphabet(parts.tokens[merge.left]), " ",
                               ToAlphabet(parts.tokens[merge.right]))));
  }
  return out + "\n    ]}";
}

}  // namespace

StatusOr<TokenizerParts> PartsFromJson(std::string_view text, const std::string& name) {
  CRIA_ASSIGN_OR_RETURN(const Json root, ParseJson(text, name));
  return Reader(root, name).Read();
}

std::string PartsToJson(const TokenizerParts& parts) {
  return StrCat("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n",
                "  \"added_tokens\": ", AddedTokensJson(parts), ",\n  \"normalizer\": null,\n",
                "  \"pre_tokenizer\": ", PreTokenizerJson(parts),
                ",\n  \"post_processor\": ", PostProcessorJson(parts),
                ",\n  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, ",
                "\"trim_offsets\": true, \"use_regex\": true},\n  \"model\": ", ModelJson(parts),
                "\n}\n");
}

}  // namespace cria::trainer
