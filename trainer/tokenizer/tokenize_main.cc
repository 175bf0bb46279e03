// `cria tokenize`: train a tokenizer, encode and decode with one, look into one, convert one.
//
// Exit: 0 done; 1 something went wrong; 2 usage.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "trainer/tokenizer/bpe_trainer.h"
#include "trainer/tokenizer/load_tokenizer.h"
#include "trainer/tokenizer/parallel_encode.h"
#include "trainer/tokenizer/tiktoken.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

struct Flags {
  std::string tokenizer;
  TiktokenSpecials specials = TiktokenSpecials::kLlama31;
  std::vector<std::string> files;
  std::vector<std::string> texts;  // given on the command line itself
  BpeTrainerOptions training;
  std::string out;
  bool by_line = false;
  bool parse_special = false;
  bool add_template = false;
  bool skip_special = false;
  bool list_tokens = false;
  bool is_json = false;
  std::string convert_to;
};

const std::vector<std::pair<std::string, TiktokenSpecials>>& SpecialsByName() {
  static const std::vector<std::pair<std::string, TiktokenSpecials>> names = {
      {"none", TiktokenSpecials::kNone},
      {"3.0", TiktokenSpecials::kLlama30},
      {"3.1", TiktokenSpecials::kLlama31},
      {"3.1-hf", TiktokenSpecials::kLlama31HuggingFace}};
  return names;
}

// stdout, with a full disk or a closed pipe noticed.
Status Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    return ErrnoError(errno, "write to standard output");
  }
  return OkStatus();
}

Status PrintJson(const Json& json) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(json, 2));
  return Print(text + "\n");
}

StatusOr<Tokenizer> Load(const Flags& flags) {
  return LoadTokenizer(flags.tokenizer, {.specials = flags.specials});
}

// What the user typed or named, or standard input when nothing or "-".
struct Input {
  std::string name;
  std::string text;
};
StatusOr<std::vector<Input>> ReadInputs(const Flags& flags) {
  std::vector<Input> inputs;
  for (const std::string& text : flags.texts) inputs.push_back({"the command line", text});
  std::vector<std::string> files = flags.files;
  if (inputs.empty() && files.empty()) files = {"-"};
  for (const std::string& file : files) {
    const bool is_stdin = file == "-";
    StatusOr<std::string> text = ReadFile(is_stdin ? "/dev/stdin" : file);
    if (!text.ok()) return text.status();
    inputs.push_back({is_stdin ? "standard input" : file, std::move(text).value()});
  }
  return inputs;
}

// The bytes as a quoted string of printable ASCII and UTF-8: " the", "\n", "\xE4\xB8".
std::string Shown(std::string_view bytes) {
  std::string out = "\"";
  ForEachUtf8Run(bytes, [&](std::string_view run, bool is_valid) {
    if (is_valid) {
      const std::string quoted = Json(std::string(run)).dump();
      out += quoted.substr(1, quoted.size() - 2);
      return;
    }
    for (const char c : run) out += StrFormat("\\x%02X", static_cast<unsigned>(c & 0xFF));
  });
  return out + "\"";
}

Status AddFile(const std::string& file, BpeTrainer* trainer) {
  const std::string path = file == "-" ? "/dev/stdin" : file;
  if (const StatusOr<MappedFile> mapped = MappedFile::Open(path); mapped.ok()) {
    trainer->AddText(mapped->bytes());
    return OkStatus();
  }
  // A pipe, or really an error.
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  trainer->AddText(text);
  return OkStatus();
}

Status RunTrain(const Flags& flags) {
  CRIA_ASSIGN_OR_RETURN(BpeTrainer trainer, BpeTrainer::Create(flags.training));
  const double start_s = RealClock()->MonotonicSeconds();
  for (const std::string& file : flags.files) {
    CRIA_RETURN_IF_ERROR(AddFile(file, &trainer));
  }
  CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, trainer.Train());
  CRIA_RETURN_IF_ERROR(tokenizer.Save(flags.out));
  const double seconds = RealClock()->MonotonicSeconds() - start_s;
  if (flags.is_json) {
    return PrintJson({{"out", flags.out},
                      {"vocab_size", tokenizer.vocab_size()},
                      {"fingerprint", tokenizer.Fingerprint()},
                      {"text_bytes", trainer.num_bytes()},
                      {"distinct_pieces", trainer.num_distinct_pieces()},
                      {"seconds", seconds}});
  }
  return Print(StrCat("trained ", flags.out, ": ", tokenizer.vocab_size(), " tokens from ",
                      HumanBytes(static_cast<double>(trainer.num_bytes())), " (",
                      trainer.num_distinct_pieces(), " distinct pieces) in ", HumanSeconds(seconds),
                      "\n"));
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

Status RunEncode(const Flags& flags) {
  CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Load(flags));
  CRIA_ASSIGN_OR_RETURN(const std::vector<Input> inputs, ReadInputs(flags));
  const EncodeOptions options{.parse_special = flags.parse_special,
                              .add_template = flags.add_template};
  std::vector<std::vector<int32_t>> results;
  for (const Input& input : inputs) {
    if (flags.by_line) {
      for (std::vector<int32_t>& ids : EncodeTexts(tokenizer, SplitLines(input.text), options)) {
        results.push_back(std::move(ids));
      }
    } else {
      results.push_back(EncodeLongText(tokenizer, input.text, options));
    }
  }
  if (flags.is_json) {
    CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(Json(results)));
    return Print(text + "\n");
  }
  for (const std::vector<int32_t>& ids : results) {
    std::string line;
    for (const int32_t id : ids) line += StrCat(line.empty() ? "" : " ", id);
    CRIA_RETURN_IF_ERROR(Print(line + "\n"));
  }
  return OkStatus();
}

// The numbers in a text; between them, anything that a list of numbers has: "[1, 2, 3]".
StatusOr<std::vector<int32_t>> ParseIds(const Input& input, const Tokenizer& tokenizer) {
  constexpr std::string_view kBetween = " \t\r\n,[]";
  std::vector<int32_t> ids;
  std::string_view rest = input.text;
  while (true) {
    rest.remove_prefix(std::min(rest.find_first_not_of(kBetween), rest.size()));
    if (rest.empty()) return ids;
    const std::string_view word = rest.substr(0, rest.find_first_of(kBetween));
    int32_t id = 0;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) {
      return InvalidArgumentError(input.name, ": ", Shown(word.substr(0, 40)), " is not an id");
    }
    if (tokenizer.TokenBytes(id).empty()) {
      return OutOfRangeError(input.name, ": there is no token ", id, "; the vocabulary has ",
                             tokenizer.vocab_size());
    }
    ids.push_back(id);
    rest.remove_prefix(word.size());
  }
}

Status RunDecode(const Flags& flags) {
  CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Load(flags));
  CRIA_ASSIGN_OR_RETURN(const std::vector<Input> inputs, ReadInputs(flags));
  Json texts = Json::array();
  for (const Input& input : inputs) {
    CRIA_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ParseIds(input, tokenizer));
    const std::string text = tokenizer.Decode(ids, flags.skip_special);
    if (flags.is_json) {
      texts.push_back(ReplaceInvalidUtf8(text));
    } else {
      CRIA_RETURN_IF_ERROR(Print(text));
    }
  }
  return flags.is_json ? PrintJson(texts) : OkStatus();
}

// How a text is cut, a line a token.
Status PrintTokens(const Flags& flags, const Tokenizer& tokenizer) {
  CRIA_ASSIGN_OR_RETURN(const std::vector<Input> inputs, ReadInputs(flags));
  Json rows = Json::array();
  for (const Input& input : inputs) {
    const std::vector<int32_t> ids =
        EncodeLongText(tokenizer, input.text, {.parse_special = flags.parse_special});
    size_t offset = 0;
    for (const int32_t id : ids) {
      const std::string_view bytes = tokenizer.TokenBytes(id);
      if (flags.is_json) {
        rows.push_back({{"offset", offset}, {"id", id}, {"token", Shown(bytes)}});
      } else {
        CRIA_RETURN_IF_ERROR(Print(StrFormat("%10zu %8d  %s\n", offset, id, Shown(bytes).c_str())));
      }
      offset += bytes.size();
    }
    if (!flags.is_json) {
      const double per_token = static_cast<double>(offset) / std::max<size_t>(1, ids.size());
      CRIA_RETURN_IF_ERROR(Print(StrFormat("%s: %zu bytes, %zu tokens, %.2f bytes a token\n",
                                           input.name.c_str(), offset, ids.size(), per_token)));
    }
  }
  return flags.is_json ? PrintJson(rows) : OkStatus();
}

std::string NormalizerText(const NormalizerStep& step) {
  using Kind = NormalizerStep::Kind;
  switch (step.kind) {
    case Kind::kNfc:
      return "NFC";
    case Kind::kNfd:
      return "NFD";
    case Kind::kPrepend:
      return StrCat("Prepend ", Shown(step.content));
    case Kind::kReplaceString:
      return StrCat("Replace ", Shown(step.pattern), " by ", Shown(step.content));
    case Kind::kReplaceRegex:
      return StrCat("Replace ", step.pattern, " by ", Shown(step.content));
    case Kind::kStrip:
      return StrCat("Strip", step.strip_left ? " left" : "", step.strip_right ? " right" : "");
  }
  return "";
}

std::string SplitText(const PreTokenizerStep& step) {
  using Kind = PreTokenizerStep::Kind;
  const std::string behavior =
      StrCat(" (", SplitBehaviorName(step.behavior), step.invert ? ", inverted" : "", ")");
  switch (step.kind) {
    case Kind::kRegex:
      return step.pattern + behavior;
    case Kind::kString:
      return Shown(step.pattern) + behavior;
    case Kind::kDigits:
      return StrCat("Digits", step.individual_digits ? " one by one" : "");
    case Kind::kPunctuation:
      return "Punctuation" + behavior;
    case Kind::kWhitespaceSplit:
      return "WhitespaceSplit";
    case Kind::kByteLevel:
      return StrCat("ByteLevel", step.add_prefix_space ? " after a space before the text" : "",
                    step.use_regex ? StrCat(" by ", kGpt2Pattern) : std::string());
  }
  return "";
}

std::vector<std::string> SplitTexts(const TokenizerParts& parts) {
  std::vector<std::string> texts = parts.split_expressions;
  for (const PreTokenizerStep& step : parts.pre_tokenizer) texts.push_back(SplitText(step));
  return texts;
}

std::vector<std::string> NormalizerTexts(const TokenizerParts& parts) {
  std::vector<std::string> texts;
  for (const NormalizerStep& step : parts.normalizer) texts.push_back(NormalizerText(step));
  return texts;
}

// "<|begin_of_text|> TEXT"; empty without a template.
std::string TemplateText(const Tokenizer& tokenizer) {
  const TokenizerParts& parts = tokenizer.parts();
  if (parts.template_prefix.empty() && parts.template_suffix.empty()) return {};
  std::string text;
  for (const int32_t id : parts.template_prefix) {
    text += StrCat(Shown(tokenizer.TokenBytes(id)), " ");
  }
  text += "TEXT";
  for (const int32_t id : parts.template_suffix) {
    text += StrCat(" ", Shown(tokenizer.TokenBytes(id)));
  }
  return text;
}

std::vector<int32_t> LongestTokens(const Tokenizer& tokenizer, size_t count) {
  std::vector<int32_t> by_length;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsSpecial(id)) by_length.push_back(id);
  }
  std::stable_sort(by_length.begin(), by_length.end(), [&](int32_t a, int32_t b) {
    return tokenizer.TokenBytes(a).size() > tokenizer.TokenBytes(b).size();
  });
  by_length.resize(std::min(count, by_length.size()));
  return by_length;
}

Status PrintSummaryJson(const std::string& kind, const Tokenizer& tokenizer) {
  const TokenizerParts& parts = tokenizer.parts();
  Json added = Json::array();
  for (const AddedToken& token : parts.added) {
    added.push_back({{"id", token.id}, {"content", token.content}, {"special", token.special}});
  }
  return PrintJson({{"file", kind},
                    {"vocab_size", tokenizer.vocab_size()},
                    {"merges", parts.merges.size()},
                    {"ignore_merges", parts.ignore_merges},
                    {"normalizer", NormalizerTexts(parts)},
                    {"split", SplitTexts(parts)},
                    {"template_prefix", parts.template_prefix},
                    {"template_suffix", parts.template_suffix},
                    {"added_tokens", added},
                    {"fingerprint", tokenizer.Fingerprint()}});
}

Status PrintSummary(const Flags& flags, const Tokenizer& tokenizer) {
  CRIA_ASSIGN_OR_RETURN(const std::string file, FindTokenizerFile(flags.tokenizer));
  CRIA_ASSIGN_OR_RETURN(const TokenizerFileKind kind_of_file, TokenizerFileKindOf(file));
  const std::string kind = TokenizerFileKindName(kind_of_file);
  if (flags.is_json) return PrintSummaryJson(kind, tokenizer);
  const TokenizerParts& parts = tokenizer.parts();
  std::string out = StrCat("file         ", file, ", ", kind, "\nvocabulary   ",
                           tokenizer.vocab_size(), " ids, ", parts.merges.size(), " merges",
                           parts.ignore_merges ? ", whole pieces first" : "", "\n");
  for (const std::string& text : NormalizerTexts(parts)) {
    out += StrCat("normalizer   ", text, "\n");
  }
  for (const std::string& text : SplitTexts(parts)) out += StrCat("split        ", text, "\n");
  const std::string around = TemplateText(tokenizer);
  out += StrCat("template     ", around.empty() ? "none" : around, "\n");
  const std::string no_id = "none";
  const auto shown_id = [&](std::optional<int32_t> id) { return id ? StrCat(*id) : no_id; };
  out += StrCat("begin, end   ", shown_id(tokenizer.bos_id()), ", ", shown_id(tokenizer.eos_id()),
                "\nadded        ", parts.added.size(), " tokens");
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < std::min(kShown, parts.added.size()); ++i) {
    out += StrCat(i == 0 ? ": " : ", ", parts.added[i].id, " ", Shown(parts.added[i].content));
  }
  out += StrCat(parts.added.size() > kShown ? ", ..." : "", "\nlongest      ");
  bool is_first = true;
  for (const int32_t id : LongestTokens(tokenizer, kShown)) {
    out += StrCat(is_first ? "" : ", ", Shown(tokenizer.TokenBytes(id)));
    is_first = false;
  }
  return Print(out + StrCat("\nfingerprint  ", tokenizer.Fingerprint(), "\n"));
}

Status RunInspect(const Flags& flags) {
  CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Load(flags));
  if (!flags.files.empty() || !flags.texts.empty()) return PrintTokens(flags, tokenizer);
  if (!flags.list_tokens) return PrintSummary(flags, tokenizer);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.TokenBytes(id);
    if (bytes.empty()) continue;
    CRIA_RETURN_IF_ERROR(Print(StrFormat("%8d  %s\n", id, Shown(bytes).c_str())));
  }
  return OkStatus();
}

Status RunConvert(const Flags& flags) {
  CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Load(flags));
  if (flags.convert_to == "json") return tokenizer.Save(flags.out);
  CRIA_ASSIGN_OR_RETURN(const std::string text, TiktokenText(tokenizer));
  return WriteFileAtomic(flags.out, text);
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Byte-level BPE: Hugging Face's tokenizer.json and tiktoken's tokenizer.model.\n\n"
      "  cria tokenize train corpus.txt --vocab 4096 --out tokenizer.json\n"
      "  cria tokenize encode -t tokenizer.json --text 'In the beginning'\n"
      "  echo 'In the beginning' | cria tokenize inspect -t tokenizer.json -",
      "cria tokenize");
  app.require_subcommand(1);
  Flags flags;
  const auto add_tokenizer = [&](CLI::App* command) {
    command
        ->add_option("-t,--tokenizer", flags.tokenizer,
                     "tokenizer.json, tiktoken's tokenizer.model, or a folder with one")
        ->required();
    command
        ->add_option("--llama", flags.specials,
                     "whose special tokens follow those of a tiktoken file: 3.0, 3.1, 3.1-hf, none")
        ->transform(CLI::CheckedTransformer(SpecialsByName()))
        ->default_str("3.1");
  };
  const auto add_common = [&](CLI::App* command, const char* files_help) {
    add_tokenizer(command);
    command->add_option("file", flags.files, files_help);
  };
  const auto add_texts = [&](CLI::App* command, const char* name, const char* help) {
    command->add_option(name, flags.texts, help)->allow_extra_args(false);
  };

  CLI::App* train = app.add_subcommand("train", "learn a vocabulary from text files");
  train->add_option("file", flags.files, "text files, each a document; - is standard input")
      ->required();
  train->add_option("--vocab", flags.training.vocab_size, "number of tokens, special ones included")
      ->capture_default_str();
  train->add_option("--out", flags.out, "the tokenizer.json to write")->required();
  train
      ->add_option("--special", flags.training.special_tokens,
                   "a special token (again for each); they get the last ids")
      ->allow_extra_args(false)
      ->capture_default_str();
  train->add_flag("--json", flags.is_json, "print the result as JSON");

  CLI::App* encode = app.add_subcommand("encode", "text to ids, a line of ids for each file");
  add_common(encode, "text files; none or -: standard input");
  add_texts(encode, "--text", "this text (again for each)");
  encode->add_flag("--lines", flags.by_line, "each line is a text of its own");
  encode->add_flag("--special", flags.parse_special, "special tokens in the text become their ids");
  encode->add_flag("--template", flags.add_template,
                   "add what the template puts around a text (begin-of-text)");
  encode->add_flag("--json", flags.is_json, "print a list of lists");

  CLI::App* decode = app.add_subcommand("decode", "ids to text");
  add_common(decode, "files of numbers (1 2 3, or [1, 2, 3]); none or -: standard input");
  add_texts(decode, "--ids", "these ids: \"1 2 3\" (again for each text)");
  decode->add_flag("--skip-special", flags.skip_special, "leave special tokens out");
  decode->add_flag("--json", flags.is_json, "print a list of texts, U+FFFD for what is not UTF-8");

  CLI::App* inspect =
      app.add_subcommand("inspect", "what a tokenizer is made of, or how it cuts a text");
  add_common(inspect, "show how these files are cut, a line a token; - is standard input");
  add_texts(inspect, "--text", "show how this text is cut");
  inspect->add_flag("--tokens", flags.list_tokens, "list the vocabulary");
  inspect->add_flag("--special", flags.parse_special,
                    "special tokens in the text become their ids");
  inspect->add_flag("--json", flags.is_json, "print JSON");

  CLI::App* convert = app.add_subcommand("convert", "the same ids in another kind of file");
  add_tokenizer(convert);
  convert->add_option("--to", flags.convert_to, "json or tiktoken")
      ->required()
      ->check(CLI::IsMember({"json", "tiktoken"}));
  convert->add_option("--out", flags.out, "the file to write")->required();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  Status status = train->parsed()     ? RunTrain(flags)
                  : encode->parsed()  ? RunEncode(flags)
                  : decode->parsed()  ? RunDecode(flags)
                  : convert->parsed() ? RunConvert(flags)
                                      : RunInspect(flags);
  if (status.ok() && std::fflush(stdout) != 0) {
    status = ErrnoError(errno, "write to standard output");
  }
  if (!status.ok()) std::fprintf(stderr, "cria tokenize: %s\n", Message(status).c_str());
  return ExitCode(status);
}

}  // namespace
}  // namespace cria::trainer

int main(int argc, char** argv) { return cria::trainer::Main(argc, argv); }
