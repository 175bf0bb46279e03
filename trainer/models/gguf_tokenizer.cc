#include "trainer/models/gguf_tokenizer.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "trainer/tokenizer/byte_alphabet.h"
#include "trainer/tokenizer/split_pattern.h"

namespace cria::trainer {
namespace {

using model::GgufFile;
using model::GgufWriter;

enum TokenType : int64_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

constexpr char kModelKey[] = "tokenizer.ggml.model";
constexpr char kPreKey[] = "tokenizer.ggml.pre";
constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kTypesKey[] = "tokenizer.ggml.token_type";
constexpr char kMergesKey[] = "tokenizer.ggml.merges";
constexpr char kAddBosKey[] = "tokenizer.ggml.add_bos_token";
constexpr char kAddEosKey[] = "tokenizer.ggml.add_eos_token";
constexpr char kBosKey[] = "tokenizer.ggml.bos_token_id";
constexpr char kEosKey[] = "tokenizer.ggml.eos_token_id";
constexpr char kEomKey[] = "tokenizer.ggml.eom_token_id";
constexpr char kEotKey[] = "tokenizer.ggml.eot_token_id";
constexpr char kEosListKey[] = "cria.eos_token_ids";
constexpr char kTemplateKey[] = "tokenizer.chat_template";

constexpr char kQwen2Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kDigitPattern[] = R"(\p{N})";

// A way to split that llama.cpp has names for. The first name is the one we write.
struct Split {
  std::vector<std::string_view> names;
  std::vector<std::string> expressions;
  bool ignore_merges = false;
};

const std::vector<Split>& Splits() {
  static const std::vector<Split> splits = {
      {{"llama-bpe", "llama3", "llama-v3"}, {kLlama3Pattern}, true},
      {{"dbrx", "smaug-bpe"}, {kLlama3Pattern}, false},
      {{"gpt-2"}, {kGpt2Pattern}, false},
      {{"qwen2", "stablelm2"}, {kQwen2Pattern}, false},
      {{"smollm", "starcoder", "refact"}, {kDigitPattern, kGpt2Pattern}, false},
  };
  return splits;
}

const Split* SplitOfName(std::string_view name) {
  for (const Split& split : Splits()) {
    if (std::find(split.names.begin(), split.names.end(), name) != split.names.end()) {
      return &split;
    }
  }
  return nullptr;
}

// Reads one file's keys into a ModelFiles.
class Reader {
 public:
  Reader(const GgufFile& file, ModelFiles* files) : file_(file), files_(*files) {}

  Status Read() {
    CRIA_RETURN_IF_ERROR(ReadIds());
    if (file_.Has(kTemplateKey)) {
      CRIA_ASSIGN_OR_RETURN(files_.chat_template, file_.String(kTemplateKey));
    }
    files_.tokenizer_status = Kind();
    if (!files_.tokenizer_status.ok()) return OkStatus();
    TokenizerParts parts;
    CRIA_ASSIGN_OR_RETURN(const std::string_view pre, file_.String(kPreKey));
    parts.split_expressions = SplitOfName(pre)->expressions;
    parts.ignore_merges = SplitOfName(pre)->ignore_merges;
    CRIA_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, file_.Strings(kTokensKey));
    CRIA_RETURN_IF_ERROR(ReadTokens(texts, &parts));
    CRIA_RETURN_IF_ERROR(ReadMerges(texts, &parts));
    CRIA_RETURN_IF_ERROR(ReadTemplate(&parts));
    CRIA_ASSIGN_OR_RETURN(files_.tokenizer, Tokenizer::FromParts(std::move(parts), file_.path()));
    return OkStatus();
  }

 private:
  // OK for a tokenizer that we can run; else why not.
  Status Kind() const {
    if (!file_.Has(kModelKey)) return NotFoundError(file_.path(), ": no key ", kModelKey);
    CRIA_ASSIGN_OR_RETURN(const std::string_view kind, file_.String(kModelKey));
    if (kind == "no_vocab" || kind == "none") {
      return NotFoundError(file_.path(), ": ", kModelKey, " is ", kind, ": no tokenizer in it");
    }
    if (kind != "gpt2") {
      return UnimplementedError(file_.path(), ": ", kModelKey, " is \"", kind,
                                "\"; only gpt2 (byte-level BPE) is read");
    }
    if (!file_.Has(kPreKey)) {
      return UnimplementedError(file_.path(), ": no key ", kPreKey,
                                ": how the tokenizer splits text is not known");
    }
    CRIA_ASSIGN_OR_RETURN(const std::string_view pre, file_.String(kPreKey));
    if (SplitOfName(pre) != nullptr) return OkStatus();
    std::string known;
    for (const Split& split : Splits()) {
      for (const std::string_view name : split.names) {
        known += StrCat(known.empty() ? "" : ", ", name);
      }
    }
    return UnimplementedError(file_.path(), ": ", kPreKey, " is \"", pre, "\"; known: ", known);
  }

  StatusOr<std::optional<int32_t>> Id(const char* key) const {
    if (!file_.Has(key)) return std::optional<int32_t>();
    CRIA_ASSIGN_OR_RETURN(const int64_t id, file_.Integer(key));
    CRIA_RETURN_IF_ERROR(CheckId(key, id));
    return std::optional<int32_t>(static_cast<int32_t>(id));
  }
  Status CheckId(const char* key, int64_t id) const {
    if (id >= 0 && id < files_.config.vocab) return OkStatus();
    return InvalidArgumentError(file_.path(), ": key ", key, " has ", id,
                                "; the vocabulary has ids 0 to ", files_.config.vocab - 1);
  }

  Status ReadIds() {
    CRIA_ASSIGN_OR_RETURN(files_.bos_id, Id(kBosKey));
    std::vector<int32_t>& eos = files_.eos_ids;
    if (file_.Has(kEosListKey)) {
      CRIA_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, file_.Integers(kEosListKey));
      for (const int64_t id : ids) {
        CRIA_RETURN_IF_ERROR(CheckId(kEosListKey, id));
        eos.push_back(static_cast<int32_t>(id));
      }
      return OkStatus();
    }
    for (const char* key : {kEosKey, kEomKey, kEotKey}) {
      CRIA_ASSIGN_OR_RETURN(const std::optional<int32_t> id, Id(key));
      if (id && std::find(eos.begin(), eos.end(), *id) == eos.end()) eos.push_back(*id);
    }
    return OkStatus();
  }

  Status ReadTokens(const std::vector<std::string_view>& texts, TokenizerParts* parts) const {
    if (static_cast<int64_t>(texts.size()) > files_.config.vocab) {
      return InvalidArgumentError(file_.path(), ": ", kTokensKey, " has ", texts.size(),
                                  " tokens, the model a vocabulary of ", files_.config.vocab);
    }
    std::vector<int64_t> types(texts.size(), kNormal);
    if (file_.Has(kTypesKey)) {
      CRIA_ASSIGN_OR_RETURN(types, file_.Integers(kTypesKey));
    }
    if (types.size() != texts.size()) {
      return DataLossError(file_.path(), ": ", kTypesKey, " has ", types.size(), " types for ",
                           texts.size(), " tokens");
    }
    parts->tokens.resize(texts.size());
    for (size_t id = 0; id < texts.size(); ++id) {
      const std::string_view text = texts[id];
      switch (types[id]) {
        case kNormal:
          if (text.empty()) {
            return DataLossError(file_.path(), ": ", kTokensKey, "[", id, "] is empty");
          }
          // Text that no bytes stand for: an entry that merging never makes.
          if (!FromAlphabet(text, &parts->tokens[id])) {
            parts->tokens[id] = text;
            parts->literal_ids.push_back(static_cast<int32_t>(id));
          }
          break;
        case kControl:
        case kUserDefined: {
          const bool is_control = types[id] == kControl;
          parts->added.push_back({static_cast<int32_t>(id), std::string(text), is_control,
                                  /*normalized=*/!is_control});
          break;
        }
        case kUnused:  // no text of a token: padding of the vocabulary
          break;
        default:
          return DataLossError(file_.path(), ": ", kTypesKey, "[", id, "] is ", types[id],
                               "; byte-level BPE has 1 (normal), 3 (control), 4 (user-defined) "
                               "and 5 (unused)");
      }
    }
    while (!parts->tokens.empty() && parts->tokens.back().empty()) parts->tokens.pop_back();
    return OkStatus();
  }

  Status ReadMerges(const std::vector<std::string_view>& texts, TokenizerParts* parts) const {
    CRIA_ASSIGN_OR_RETURN(const std::vector<std::string_view> merges, file_.Strings(kMergesKey));
    std::unordered_map<std::string, int32_t> ids;
    for (size_t id = 0; id < texts.size(); ++id) ids.emplace(texts[id], static_cast<int32_t>(id));
    // Merges are of the byte alphabet throughout, also those that make an added token.
    for (const AddedToken& added : parts->added) ids.emplace(ToAlphabet(added.content), added.id);
    parts->merges.reserve(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string_view merge = merges[rank];
      const size_t space = merge.find(' ');
      if (space == std::string_view::npos) {
        return DataLossError(file_.path(), ": ", kMergesKey, "[", rank, "] \"", merge,
                             "\" is not two tokens with a space between");
      }
      const std::string first(merge.substr(0, space)), second(merge.substr(space + 1));
      const auto left = ids.find(first);
      const auto right = ids.find(second);
      const auto result = ids.find(first + second);
      if (left == ids.end() || right == ids.end() || result == ids.end()) {
        return DataLossError(file_.path(), ": ", kMergesKey, "[", rank, "] \"", merge,
                             "\" names a token that is not there");
      }
      parts->merges.push_back({left->second, right->second, result->second});
    }
    return OkStatus();
  }

  Status ReadTemplate(TokenizerParts* parts) const {
    CRIA_ASSIGN_OR_RETURN(const std::string_view pre, file_.String(kPreKey));
    bool add_bos = pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3";
    if (!files_.bos_id) add_bos = false;  // llama.cpp's default without an id means nothing
    if (file_.Has(kAddBosKey)) {
      CRIA_ASSIGN_OR_RETURN(add_bos, file_.Bool(kAddBosKey));
    }
    bool add_eos = false;
    if (file_.Has(kAddEosKey)) {
      CRIA_ASSIGN_OR_RETURN(add_eos, file_.Bool(kAddEosKey));
    }
    CRIA_ASSIGN_OR_RETURN(const std::optional<int32_t> eos_id, Id(kEosKey));
    if (add_bos) {
      CRIA_RETURN_IF_ERROR(CheckTemplateId(kAddBosKey, files_.bos_id, *parts));
      parts->template_prefix = {*files_.bos_id};
    }
    if (add_eos) {
      CRIA_RETURN_IF_ERROR(CheckTemplateId(kAddEosKey, eos_id, *parts));
      parts->template_suffix = {*eos_id};
    }
    return OkStatus();
  }
  Status CheckTemplateId(const char* key, std::optional<int32_t> id,
                         const TokenizerParts& parts) const {
    if (!id) return DataLossError(file_.path(), ": ", key, " is true, but the id is not there");
    for (const AddedToken& added : parts.added) {
      if (added.id == *id) return OkStatus();
    }
    return DataLossError(file_.path(), ": ", key, " is true, but token ", *id,
                         " is no control token");
  }

  const GgufFile& file_;
  ModelFiles& files_;
};

constexpr char kWithoutIt[] = "; export without the tokenizer (--no-tokenizer)";

// The expressions that cut the text one after another, where a pre-tokenizer is no more than that.
std::optional<std::vector<std::string>> Expressions(const TokenizerParts& parts) {
  if (parts.pre_tokenizer.empty()) return parts.split_expressions;
  std::vector<std::string> out;
  for (const PreTokenizerStep& step : parts.pre_tokenizer) {
    const bool is_plain_split = step.behavior == SplitBehavior::kIsolated && !step.invert;
    if (step.kind == PreTokenizerStep::Kind::kRegex && is_plain_split) {
      out.push_back(step.pattern);
    } else if (step.kind == PreTokenizerStep::Kind::kDigits && step.individual_digits) {
      out.push_back(kDigitPattern);
    } else if (step.kind == PreTokenizerStep::Kind::kByteLevel && !step.add_prefix_space) {
      if (step.use_regex) out.push_back(kGpt2Pattern);
    } else {
      return std::nullopt;
    }
  }
  return out;
}

StatusOr<std::string_view> NameOfSplit(const TokenizerParts& parts) {
  const std::optional<std::vector<std::string>> expressions = Expressions(parts);
  std::string listed = expressions ? "" : "more than expressions";
  if (expressions) {
    for (const Split& split : Splits()) {
      if (split.expressions == *expressions && split.ignore_merges == parts.ignore_merges) {
        return split.names[0];
      }
    }
    for (const std::string& expression : *expressions) {
      listed += StrCat(listed.empty() ? "" : " then ", "\"", expression, "\"");
    }
  }
  return InvalidArgumentError("llama.cpp has no name for this tokenizer's split (",
                              listed.empty() ? "none" : listed, ", ignore_merges ",
                              parts.ignore_merges, ")", kWithoutIt);
}

// What llama.cpp's byte-level BPE does not do, whatever the file says.
Status CheckPlain(const TokenizerParts& parts) {
  if (!parts.normalizer.empty()) {
    return InvalidArgumentError("the tokenizer normalizes text, which GGUF does not know",
                                kWithoutIt);
  }
  if (const std::optional<int> byte = parts.MissingByte()) {
    return InvalidArgumentError("the tokenizer has no token for byte ", *byte,
                                ", which GGUF demands", kWithoutIt);
  }
  for (const AddedToken& added : parts.added) {
    if (!added.single_word && !added.lstrip && !added.rstrip) continue;
    return InvalidArgumentError(
        "added token \"", added.content,
        "\" looks at what is beside it (single_word, lstrip, rstrip), which "
        "GGUF does not know",
        kWithoutIt);
  }
  return OkStatus();
}

// Writes one ModelFiles' keys.
class Writer {
 public:
  Writer(const ModelFiles& files, GgufWriter* out) : files_(files), out_(*out) {}

  Status Write(bool keep_tokenizer) {
    const bool has_one = keep_tokenizer && files_.tokenizer.has_value();
    if (keep_tokenizer && !has_one &&
        files_.tokenizer_status.code() == StatusCode::kUnimplemented) {
      return InvalidArgumentError("the tokenizer can't be kept: ", Message(files_.tokenizer_status),
                                  kWithoutIt);
    }
    if (has_one) {
      CRIA_RETURN_IF_ERROR(AddVocabulary(files_.tokenizer->parts()));
    } else {
      out_.AddString(kModelKey, "no_vocab");
    }
    std::optional<int32_t> bos = files_.bos_id;
    std::vector<int32_t> eos = files_.eos_ids;
    if (has_one) CRIA_RETURN_IF_ERROR(AddTemplate(files_.tokenizer->parts(), &bos, &eos));
    if (bos) out_.AddU32(kBosKey, static_cast<uint32_t>(*bos));
    AddEos(eos);
    if (!files_.chat_template.empty()) out_.AddString(kTemplateKey, files_.chat_template);
    return OkStatus();
  }

 private:
  Status AddVocabulary(const TokenizerParts& parts) {
    CRIA_RETURN_IF_ERROR(CheckPlain(parts));
    CRIA_ASSIGN_OR_RETURN(const std::string_view pre, NameOfSplit(parts));
    const auto vocab = static_cast<size_t>(files_.config.vocab);
    if (parts.tokens.size() > vocab) {
      return InvalidArgumentError("the tokenizer has ", parts.tokens.size(),
                                  " ids, the model a vocabulary of ", vocab, kWithoutIt);
    }
    std::vector<std::string> texts(vocab);
    std::vector<int32_t> types(vocab, kUnused);
    for (size_t id = 0; id < parts.tokens.size(); ++id) {
      if (parts.tokens[id].empty()) continue;
      texts[id] = ToAlphabet(parts.tokens[id]);
      types[id] = kNormal;
    }
    for (const int32_t id : parts.literal_ids) {
      texts[static_cast<size_t>(id)] = parts.tokens[static_cast<size_t>(id)];
    }
    for (const AddedToken& added : parts.added) {
      texts[static_cast<size_t>(added.id)] = added.content;
      types[static_cast<size_t>(added.id)] = added.special ? kControl : kUserDefined;
    }
    CRIA_RETURN_IF_ERROR(FillGaps(&texts));
    std::vector<std::string> merges;
    merges.reserve(parts.merges.size());
    for (const BpeMerge& merge : parts.merges) {
      merges.push_back(StrCat(ToAlphabet(parts.tokens[static_cast<size_t>(merge.left)]), " ",
                              ToAlphabet(parts.tokens[static_cast<size_t>(merge.right)])));
    }
    out_.AddString(kModelKey, "gpt2");
    out_.AddString(kPreKey, pre);
    out_.AddStrings(kTokensKey, texts);
    out_.AddI32s(kTypesKey, types);
    out_.AddStrings(kMergesKey, merges);
    return OkStatus();
  }

  // llama.cpp stops the program where two tokens read the same; ids without a text get one.
  static Status FillGaps(std::vector<std::string>* texts) {
    std::unordered_set<std::string_view> seen;
    for (size_t id = 0; id < texts->size(); ++id) {
      if ((*texts)[id].empty() || seen.insert((*texts)[id]).second) continue;
      return InvalidArgumentError("two tokens read \"", (*texts)[id],
                                  "\" in GGUF, an added one and one of the byte alphabet",
                                  kWithoutIt);
    }
    for (size_t id = 0; id < texts->size(); ++id) {
      if (!(*texts)[id].empty()) continue;
      std::string name = StrCat("[PAD", id, "]");
      while (seen.contains(name)) name += "]";
      (*texts)[id] = std::move(name);
    }
    return OkStatus();
  }

  // GGUF can say: BOS before, EOS after. Ids that only the template knows become the model's.
  Status AddTemplate(const TokenizerParts& parts, std::optional<int32_t>* bos,
                     std::vector<int32_t>* eos) {
    const std::vector<int32_t>& prefix = parts.template_prefix;
    const std::vector<int32_t>& suffix = parts.template_suffix;
    if (!prefix.empty() && !*bos) *bos = prefix[0];
    if (!suffix.empty() && eos->empty()) *eos = {suffix[0]};
    const bool is_bos = prefix.empty() || (prefix.size() == 1 && prefix[0] == **bos);
    const bool is_eos = suffix.empty() || (suffix.size() == 1 && suffix[0] == eos->front());
    if (!is_bos || !is_eos) {
      return InvalidArgumentError("the tokenizer's template puts ", prefix.size(),
                                  " tokens before a text and ", suffix.size(),
                                  " after it; GGUF knows BOS and EOS alone", kWithoutIt);
    }
    out_.AddBool(kAddBosKey, !prefix.empty());
    out_.AddBool(kAddEosKey, !suffix.empty());
    return OkStatus();
  }

  bool IsNamed(int32_t id, std::string_view name) const {
    return files_.tokenizer && files_.tokenizer->TokenBytes(id) == name;
  }

  void AddEos(const std::vector<int32_t>& ids) {
    if (ids.empty()) return;
    std::optional<int32_t> eom, eot;
    for (size_t i = 1; i < ids.size(); ++i) {
      if (IsNamed(ids[i], "<|eom_id|>")) eom = ids[i];
      if (IsNamed(ids[i], "<|eot_id|>")) eot = ids[i];
    }
    for (size_t i = 1; i < ids.size(); ++i) {
      if (ids[i] == eom || ids[i] == eot) continue;
      if (!eot) {
        eot = ids[i];
      } else if (!eom) {
        eom = ids[i];
      }
    }
    // What a reader of these keys makes of them.
    std::vector<int32_t> told;
    const auto tell = [&](const char* key, std::optional<int32_t> id) {
      if (!id) return;
      out_.AddU32(key, static_cast<uint32_t>(*id));
      if (std::find(told.begin(), told.end(), *id) == told.end()) told.push_back(*id);
    };
    tell(kEosKey, ids[0]);
    tell(kEomKey, eom);
    tell(kEotKey, eot);
    if (told != ids) out_.AddI32s(kEosListKey, ids);
  }

  const ModelFiles& files_;
  GgufWriter& out_;
};

}  // namespace

Status ReadGgufTokenizer(const GgufFile& file, ModelFiles* files) {
  return Reader(file, files).Read();
}

Status AddTokenizerKeys(const ModelFiles& files, bool keep_tokenizer, GgufWriter* writer) {
  return Writer(files, writer).Write(keep_tokenizer);
}

}  // namespace cria::trainer
