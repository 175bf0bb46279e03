// The writing half of tokenizer_json.h.

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/tokenizer_json.h"

namespace cria::trainer {
namespace {

// What is not UTF-8 (a token's name from a hostile GGUF, say) is replaced: nothing here throws.
std::string Quote(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

const char* BoolName(bool value) { return value ? "true" : "false"; }

std::string AddedTokensJson(const TokenizerParts& parts) {
  std::string out = "[";
  for (const AddedToken& token : parts.added) {
    out += StrCat(
        out.size() > 1 ? "," : "", "\n    {\"id\": ", token.id,
        ", \"content\": ", Quote(token.content), ", \"single_word\": ", BoolName(token.single_word),
        ", \"lstrip\": ", BoolName(token.lstrip), ", \"rstrip\": ", BoolName(token.rstrip),
        ", \"normalized\": ", BoolName(token.normalized),
        ", \"special\": ", BoolName(token.special), "}");
  }
  return out + (parts.added.empty() ? "]" : "\n  ]");
}

std::string PatternJson(bool is_regex, const std::string& pattern) {
  return StrCat("\"pattern\": {\"", is_regex ? "Regex" : "String", "\": ", Quote(pattern), "}");
}

std::string NormalizerStepJson(const NormalizerStep& step) {
  using Kind = NormalizerStep::Kind;
  switch (step.kind) {
    case Kind::kNfc:
      return R"({"type": "NFC"})";
    case Kind::kNfd:
      return R"({"type": "NFD"})";
    case Kind::kPrepend:
      return StrCat(R"({"type": "Prepend", "prepend": )", Quote(step.content), "}");
    case Kind::kReplaceString:
    case Kind::kReplaceRegex:
      return StrCat(R"({"type": "Replace", )",
                    PatternJson(step.kind == Kind::kReplaceRegex, step.pattern),
                    ", \"content\": ", Quote(step.content), "}");
    case Kind::kStrip:
      return StrCat(R"({"type": "Strip", "strip_left": )", BoolName(step.strip_left),
                    ", \"strip_right\": ", BoolName(step.strip_right), "}");
  }
  return "null";
}

std::string NormalizerJson(const TokenizerParts& parts) {
  if (parts.normalizer.empty()) return "null";
  if (parts.normalizer.size() == 1) return NormalizerStepJson(parts.normalizer[0]);
  std::string steps;
  for (const NormalizerStep& step : parts.normalizer) {
    steps += StrCat(steps.empty() ? "" : ",", "\n    ", NormalizerStepJson(step));
  }
  return StrCat(R"({"type": "Sequence", "normalizers": [)", steps, "\n  ]}");
}

std::string PreTokenizerStepJson(const PreTokenizerStep& step) {
  using Kind = PreTokenizerStep::Kind;
  switch (step.kind) {
    case Kind::kRegex:
    case Kind::kString:
      return StrCat("{\"type\": \"Split\", ", PatternJson(step.kind == Kind::kRegex, step.pattern),
                    ", \"behavior\": \"", SplitBehaviorName(step.behavior),
                    "\", \"invert\": ", BoolName(step.invert), "}");
    case Kind::kDigits:
      return StrCat(R"({"type": "Digits", "individual_digits": )", BoolName(step.individual_digits),
                    "}");
    case Kind::kPunctuation:
      return StrCat(R"({"type": "Punctuation", "behavior": ")", SplitBehaviorName(step.behavior),
                    "\"}");
    case Kind::kWhitespaceSplit:
      return R"({"type": "WhitespaceSplit"})";
    case Kind::kByteLevel:
      return StrCat(R"({"type": "ByteLevel", "add_prefix_space": )",
                    BoolName(step.add_prefix_space), R"(, "trim_offsets": true, "use_regex": )",
                    BoolName(step.use_regex), "}");
  }
  return "null";
}

std::string PreTokenizerJson(const TokenizerParts& parts) {
  std::vector<PreTokenizerStep> steps = parts.pre_tokenizer;
  if (steps.empty()) {
    for (const std::string& expression : parts.split_expressions) {
      steps.push_back({.kind = PreTokenizerStep::Kind::kRegex, .pattern = expression});
    }
    steps.push_back({.kind = PreTokenizerStep::Kind::kByteLevel});
  }
  std::string out;
  for (const PreTokenizerStep& step : steps) {
    out += StrCat(out.empty() ? "" : ",", "\n    ", PreTokenizerStepJson(step));
  }
  return StrCat(R"({"type": "Sequence", "pretokenizers": [)", out, "\n  ]}");
}

// By id: what names the token in the file's vocabulary and template.
std::vector<std::string> NamesInFile(const TokenizerParts& parts) {
  std::vector<std::string> names(parts.tokens.size());
  for (size_t id = 0; id < names.size(); ++id) names[id] = ToAlphabet(parts.tokens[id]);
  for (const int32_t id : parts.literal_ids) names[id] = parts.tokens[id];
  for (const AddedToken& token : parts.added) names[token.id] = token.content;
  return names;
}

// By id: whether the vocabulary lists it.
std::vector<bool> ListedInVocab(const TokenizerParts& parts) {
  std::vector<bool> listed(parts.tokens.size());
  for (size_t id = 0; id < listed.size(); ++id) listed[id] = !parts.tokens[id].empty();
  const std::vector<bool> never_merged = parts.IsNeverMerged();
  for (const AddedToken& token : parts.added) {
    if (never_merged[token.id] && !token.in_vocab) listed[token.id] = false;
  }
  return listed;
}

// `sequence`: the items around "A" or "B", each of one type id.
std::string TemplateItems(const TokenizerParts& parts, const std::vector<std::string>& names,
                          const char* sequence, int type_id) {
  std::string out;
  const auto add = [&](std::string_view kind, const std::string& id) {
    out += StrCat(out.empty() ? "" : ", ", "{\"", kind, "\": {\"id\": ", Quote(id),
                  ", \"type_id\": ", type_id, "}}");
  };
  for (const int32_t id : parts.template_prefix) add("SpecialToken", names[id]);
  add("Sequence", sequence);
  for (const int32_t id : parts.template_suffix) add("SpecialToken", names[id]);
  return out;
}

std::string PostProcessorJson(const TokenizerParts& parts, const std::vector<std::string>& names) {
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
    const std::string content = Quote(names[id]);
    special += StrCat(special.empty() ? "" : ", ", content, ": {\"id\": ", content, ", \"ids\": [",
                      id, "], \"tokens\": [", content, "]}");
  }
  const std::string single = TemplateItems(parts, names, "A", 0);
  return StrCat("{\"type\": \"Sequence\", \"processors\": [\n    ", byte_level,
                ",\n    {\"type\": \"TemplateProcessing\", \"single\": [", single, "], \"pair\": [",
                single, ", ", TemplateItems(parts, names, "B", 1), "], \"special_tokens\": {",
                special, "}}\n  ]}");
}

std::string ModelJson(const TokenizerParts& parts, const std::vector<std::string>& names) {
  std::string out = StrCat(R"({"type": "BPE", "dropout": null, "unk_token": )",
                           parts.unk_id.has_value() ? Quote(names[*parts.unk_id]) : "null",
                           R"(, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": )",
                           BoolName(parts.fuse_unk), R"(, "byte_fallback": false,
    "ignore_merges": )",
                           BoolName(parts.ignore_merges), ",\n    \"vocab\": {");
  const std::vector<bool> listed = ListedInVocab(parts);
  bool is_first = true;
  for (size_t id = 0; id < parts.tokens.size(); ++id) {
    if (!listed[id]) continue;
    out += StrCat(is_first ? "" : ",", "\n", Quote(names[id]), ": ", id);
    is_first = false;
  }
  out += "\n    },\n    \"merges\": [";
  for (size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const BpeMerge& merge = parts.merges[rank];
    out += StrCat(rank == 0 ? "" : ",", "\n",
                  Quote(StrCat(names[merge.left], " ", names[merge.right])));
  }
  return out + "\n    ]}";
}

}  // namespace

std::string PartsToJson(const TokenizerParts& parts) {
  const std::vector<std::string> names = NamesInFile(parts);
  return StrCat("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n",
                "  \"added_tokens\": ", AddedTokensJson(parts),
                ",\n  \"normalizer\": ", NormalizerJson(parts),
                ",\n  \"pre_tokenizer\": ", PreTokenizerJson(parts),
                ",\n  \"post_processor\": ", PostProcessorJson(parts, names),
                ",\n  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, ",
                "\"trim_offsets\": true, \"use_regex\": true},\n  \"model\": ",
                ModelJson(parts, names), "\n}\n");
}

}  // namespace cria::trainer
