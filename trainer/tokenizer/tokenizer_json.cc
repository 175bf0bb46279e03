#include "trainer/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <optional>
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
    CRIA_RETURN_IF_ERROR(ReadNormalizer(Get(root_, "normalizer")));
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
    CRIA_RETURN_IF_ERROR(ReadUnknown(model));
    return ReadMerges(Get(model, "merges"));
  }

  // unk_token matters where a byte has no token; a vocabulary that lacks it is damaged only then.
  Status ReadUnknown(const Json& model) {
    CRIA_ASSIGN_OR_RETURN(parts_.fuse_unk, Bool(model, "fuse_unk", false));
    const Json& unk = Get(model, "unk_token");
    if (unk.is_null()) return OkStatus();
    CRIA_ASSIGN_OR_RETURN(const std::string token, JsonGet<std::string>(model, "unk_token", name_));
    if (const auto found = vocab_.find(token); found != vocab_.end()) {
      parts_.unk_id = found->second;
    } else if (parts_.MissingByte().has_value()) {
      return DataLossError(name_, ": model.unk_token \"", token,
                           "\" is not in the vocabulary, and not every byte is");
    }
    return OkStatus();
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
      CRIA_ASSIGN_OR_RETURN(token.single_word, Bool(item, "single_word", false));
      CRIA_ASSIGN_OR_RETURN(token.lstrip, Bool(item, "lstrip", false));
      CRIA_ASSIGN_OR_RETURN(token.rstrip, Bool(item, "rstrip", false));
      const auto in_vocab = vocab_.find(token.content);
      if (in_vocab != vocab_.end() && in_vocab->second != token.id) {
        return DataLossError(name_, ": added token \"", token.content, "\" has id ", token.id,
                             ", but ", in_vocab->second, " in the vocabulary");
      }
      if (const auto raw = raw_tokens_.find(token.id);
          raw != raw_tokens_.end() && raw->second == token.content) {
        raw_tokens_.erase(raw);
      }
      token.in_vocab = in_vocab != vocab_.end();
      added_ids_.emplace(token.content, token.id);
      parts_.added.push_back(std::move(token));
    }
    for (auto& [id, text] : raw_tokens_) {
      if (!parts_.tokens[id].empty()) continue;
      parts_.tokens[id] = text;
      parts_.literal_ids.push_back(id);
    }
    std::sort(parts_.literal_ids.begin(), parts_.literal_ids.end());
    return OkStatus();
  }

  // "pattern": {"Regex": "..."} or {"String": "..."}.
  struct Pattern {
    std::string text;
    bool is_regex = false;
  };
  StatusOr<Pattern> ReadPattern(const Json& object, const std::string& what) {
    const Json& pattern = Get(object, "pattern");
    if (const Json& regex = Get(pattern, "Regex"); regex.is_string()) {
      return Pattern{regex.get<std::string>(), true};
    }
    if (const Json& text = Get(pattern, "String"); text.is_string()) {
      return Pattern{text.get<std::string>(), false};
    }
    return UnimplementedError(name_, ": ", what, " without pattern.Regex or pattern.String");
  }

  Status ReadNormalizer(const Json& normalizer) {
    for (const Json* json : Flatten(normalizer, "normalizers")) {
      NormalizerStep step;
      if (IsType(*json, "NFC")) {
        step.kind = NormalizerStep::Kind::kNfc;
      } else if (IsType(*json, "NFD")) {
        step.kind = NormalizerStep::Kind::kNfd;
      } else if (IsType(*json, "Prepend")) {
        step.kind = NormalizerStep::Kind::kPrepend;
        CRIA_ASSIGN_OR_RETURN(step.content, JsonGet<std::string>(*json, "prepend", name_));
      } else if (IsType(*json, "Replace")) {
        CRIA_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(*json, "normalizer Replace"));
        step.kind = pattern.is_regex ? NormalizerStep::Kind::kReplaceRegex
                                     : NormalizerStep::Kind::kReplaceString;
        step.pattern = pattern.text;
        CRIA_ASSIGN_OR_RETURN(step.content, JsonGet<std::string>(*json, "content", name_));
      } else if (IsType(*json, "Strip")) {
        step.kind = NormalizerStep::Kind::kStrip;
        CRIA_ASSIGN_OR_RETURN(step.strip_left, Bool(*json, "strip_left", true));
        CRIA_ASSIGN_OR_RETURN(step.strip_right, Bool(*json, "strip_right", true));
      } else {
        return UnimplementedError(name_, ": normalizer ", TypeOf(*json), " is not understood");
      }
      parts_.normalizer.push_back(std::move(step));
    }
    return OkStatus();
  }

  Status ReadPreTokenizer(const Json& pre_tokenizer) {
    std::vector<PreTokenizerStep> steps;
    int num_byte_level = 0;
    for (const Json* json : Flatten(pre_tokenizer, "pretokenizers")) {
      CRIA_ASSIGN_OR_RETURN(PreTokenizerStep step, ReadStep(*json));
      if (step.kind == PreTokenizerStep::Kind::kByteLevel && ++num_byte_level > 1) {
        return UnimplementedError(name_, ": pre_tokenizer with two ByteLevel");
      }
      steps.push_back(std::move(step));
    }
    if (num_byte_level == 0) {
      return UnimplementedError(name_, ": pre_tokenizer without ByteLevel: not a byte-level BPE");
    }
    if (!ToExpressions(steps)) parts_.pre_tokenizer = std::move(steps);
    return OkStatus();
  }

  // The usual case: pieces are the matches of expressions, in bytes.
  bool ToExpressions(const std::vector<PreTokenizerStep>& steps) {
    for (size_t i = 0; i + 1 < steps.size(); ++i) {
      if (steps[i].kind != PreTokenizerStep::Kind::kRegex || steps[i].invert ||
          steps[i].behavior != SplitBehavior::kIsolated) {
        return false;
      }
    }
    const PreTokenizerStep& last = steps.back();
    if (last.kind != PreTokenizerStep::Kind::kByteLevel || last.add_prefix_space) return false;
    for (const PreTokenizerStep& step : steps) {
      if (step.kind == PreTokenizerStep::Kind::kRegex) {
        parts_.split_expressions.push_back(step.pattern);
      }
    }
    if (last.use_regex) parts_.split_expressions.push_back(kGpt2Pattern);
    return true;
  }

  StatusOr<PreTokenizerStep> ReadStep(const Json& json) {
    using Kind = PreTokenizerStep::Kind;
    PreTokenizerStep step;
    if (IsType(json, "Split")) {
      CRIA_ASSIGN_OR_RETURN(const Pattern pattern, ReadPattern(json, "pre_tokenizer Split"));
      step.kind = pattern.is_regex ? Kind::kRegex : Kind::kString;
      step.pattern = pattern.text;
      CRIA_ASSIGN_OR_RETURN(step.invert, Bool(json, "invert", false));
      CRIA_ASSIGN_OR_RETURN(step.behavior, ReadBehavior(json));
    } else if (IsType(json, "ByteLevel")) {
      step.kind = Kind::kByteLevel;
      CRIA_ASSIGN_OR_RETURN(step.add_prefix_space, Bool(json, "add_prefix_space", true));
      CRIA_ASSIGN_OR_RETURN(step.use_regex, Bool(json, "use_regex", true));
    } else if (IsType(json, "Digits")) {
      step.kind = Kind::kDigits;
      CRIA_ASSIGN_OR_RETURN(step.individual_digits, Bool(json, "individual_digits", false));
    } else if (IsType(json, "Punctuation")) {
      step.kind = Kind::kPunctuation;
      if (!Get(json, "behavior").is_null()) {
        CRIA_ASSIGN_OR_RETURN(step.behavior, ReadBehavior(json));
      }
    } else if (IsType(json, "WhitespaceSplit")) {
      step.kind = Kind::kWhitespaceSplit;
    } else {
      return UnimplementedError(name_, ": pre_tokenizer ", TypeOf(json), " is not understood");
    }
    return step;
  }

  StatusOr<SplitBehavior> ReadBehavior(const Json& json) {
    CRIA_ASSIGN_OR_RETURN(const std::string name, JsonGet<std::string>(json, "behavior", name_));
    const std::optional<SplitBehavior> behavior = SplitBehaviorOf(name);
    if (behavior.has_value()) return *behavior;
    return DataLossError(name_, ": pre_tokenizer ", TypeOf(json), " with behavior \"", name, "\"");
  }

  Status ReadPostProcessor(const Json& post_processor) {
    for (const Json* step : Flatten(post_processor, "processors")) {
      if (IsType(*step, "TemplateProcessing")) {
        CRIA_RETURN_IF_ERROR(ReadTemplate(*step));
      } else if (IsType(*step, "RobertaProcessing") || IsType(*step, "BertProcessing")) {
        CRIA_ASSIGN_OR_RETURN(const int32_t begin, ReadPair(*step, "cls"));
        CRIA_ASSIGN_OR_RETURN(const int32_t end, ReadPair(*step, "sep"));
        AddAround({begin}, {end});
      } else if (!IsType(*step, "ByteLevel")) {  // it moves offsets alone, which we don't give
        return UnimplementedError(name_, ": post_processor ", TypeOf(*step), " is not understood");
      }
    }
    return OkStatus();
  }

  // A later processor's tokens go around those of the ones before.
  void AddAround(const std::vector<int32_t>& before, const std::vector<int32_t>& after) {
    parts_.template_prefix.insert(parts_.template_prefix.begin(), before.begin(), before.end());
    parts_.template_suffix.insert(parts_.template_suffix.end(), after.begin(), after.end());
  }

  // ["</s>", 2]
  StatusOr<int32_t> ReadPair(const Json& step, const char* key) {
    const Json& pair = Get(step, key);
    if (!pair.is_array() || pair.size() != 2) {
      return DataLossError(name_, ": post_processor.", key, ": expected a token and its id");
    }
    return CheckId(pair[1], key);
  }

  Status ReadTemplate(const Json& step) {
    std::vector<int32_t> before, after;
    bool has_text = false;
    for (const Json& item : Get(step, "single")) {
      const Json& special = Get(item, "SpecialToken");
      if (!special.is_null()) {
        CRIA_ASSIGN_OR_RETURN(const std::string key, JsonGet<std::string>(special, "id", name_));
        CRIA_RETURN_IF_ERROR(AddTemplateIds(step, key, has_text ? &after : &before));
        continue;
      }
      if (Get(item, "Sequence").is_null() || has_text) {
        return DataLossError(name_,
                             ": post_processor.single: expected one Sequence among SpecialTokens");
      }
      has_text = true;
    }
    if (!has_text) return DataLossError(name_, ": post_processor.single: without the text itself");
    AddAround(before, after);
    return OkStatus();
  }

  // What a template's key stands for: its entry's ids, or the added token of that content.
  Status AddTemplateIds(const Json& step, const std::string& key, std::vector<int32_t>* out) {
    const Json& ids = Get(Get(Get(step, "special_tokens"), key.c_str()), "ids");
    if (ids.is_array()) {
      for (const Json& id : ids) {
        CRIA_ASSIGN_OR_RETURN(const int32_t checked, CheckId(id, key));
        out->push_back(checked);
      }
      return OkStatus();
    }
    const auto found = added_ids_.find(key);
    if (found == added_ids_.end()) {
      return DataLossError(name_, ": post_processor: \"", key, "\" is no added token");
    }
    out->push_back(found->second);
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

}  // namespace

StatusOr<TokenizerParts> PartsFromJson(std::string_view text, const std::string& name) {
  CRIA_ASSIGN_OR_RETURN(const Json root, ParseJson(text, name));
  return Reader(root, name).Read();
}

}  // namespace cria::trainer
