#include "trainer/check/tokenizer_check.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "trainer/tokenizer/load_tokenizer.h"
#include "trainer/tokenizer/streaming_decoder.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {
namespace {

constexpr int kShownDifferencesMax = 3;

struct Case {
  int line = 0;
  std::string text;
  std::vector<int32_t> ids;
  std::string decoded;
  bool has_bos_template = false;
};

StatusOr<std::vector<Case>> ReadCases(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<Case> cases;
  std::string_view rest = text;
  for (int line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view row = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (row.empty()) continue;
    const std::string where = StrCat(path, ":", line);
    CRIA_ASSIGN_OR_RETURN(const Json object, ParseJson(row, where));
    Case c;
    c.line = line;
    CRIA_ASSIGN_OR_RETURN(c.text, JsonGet<std::string>(object, "text", where));
    CRIA_ASSIGN_OR_RETURN(c.ids, JsonGet<std::vector<int32_t>>(object, "ids", where));
    CRIA_ASSIGN_OR_RETURN(c.decoded, JsonGet<std::string>(object, "decoded", where));
    CRIA_ASSIGN_OR_RETURN(c.has_bos_template,
                          JsonGetOr<bool>(object, "ids_with_bos", false, where));
    cases.push_back(std::move(c));
  }
  if (cases.empty()) return DataLossError(path, ": there is no case");
  return cases;
}

// One line of the report: how many cases agree on a quantity, and the first that don't.
class Quantity {
 public:
  Quantity(std::string dir, const char* name) : dir_(std::move(dir)), name_(name) {}

  void Compare(const Case& c, const std::string& got, const std::string& want) {
    ++num_cases_;
    if (got == want) return;
    ++num_wrong_;
    if (num_wrong_ > kShownDifferencesMax) return;
    differences_ += StrCat("    case ", c.line, ", text ", Shown(c.text), "\n      got  ", got,
                           "\n      want ", want, "\n");
  }

  bool Report() const {
    std::printf("%-40s %-18s %6d of %6d equal  %s\n%s", dir_.c_str(), name_,
                num_cases_ - num_wrong_, num_cases_, num_wrong_ == 0 ? "ok" : "DIFFERENT",
                differences_.c_str());
    return num_wrong_ == 0;
  }

  static std::string Shown(const std::string& text) {
    return Json(text.substr(0, 80)).dump(-1, ' ', true, Json::error_handler_t::replace);
  }

 private:
  const std::string dir_;
  const char* const name_;
  int num_cases_ = 0;
  int num_wrong_ = 0;
  std::string differences_;
};

std::string IdsText(const std::vector<int32_t>& ids) {
  std::string out = "[";
  for (const int32_t id : ids) out += StrCat(out.size() > 1 ? " " : "", id);
  return out + "]";
}

std::string DecodeInSteps(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamingDecoder decoder(&tokenizer);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

StatusOr<bool> CheckFolder(const std::string& dir) {
  CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, LoadTokenizer(dir));
  CRIA_ASSIGN_OR_RETURN(const std::vector<Case> cases, ReadCases(JoinPath(dir, "cases.jsonl")));
  CRIA_ASSIGN_OR_RETURN(const Tokenizer reloaded,
                        Tokenizer::FromJson(tokenizer.ToJson(), "tokenizer.json as saved"));

  Quantity ids(dir, "ids");
  Quantity ids_with_bos(dir, "ids with template");
  Quantity decoded(dir, "decoded");
  Quantity streamed(dir, "decoded in steps");
  Quantity resaved(dir, "ids after saving");
  for (const Case& c : cases) {
    std::vector<int32_t> got;
    tokenizer.Encode(c.text, {.parse_special = true}, &got);
    ids.Compare(c, IdsText(got), IdsText(c.ids));

    std::vector<int32_t> again;
    reloaded.Encode(c.text, {.parse_special = true}, &again);
    resaved.Compare(c, IdsText(again), IdsText(c.ids));

    if (c.has_bos_template) {
      std::vector<int32_t> want = {tokenizer.bos_id().value_or(-1)};
      want.insert(want.end(), c.ids.begin(), c.ids.end());
      got.clear();
      tokenizer.Encode(c.text, {.parse_special = true, .add_template = true}, &got);
      ids_with_bos.Compare(c, IdsText(got), IdsText(want));
    }
    decoded.Compare(c, Quantity::Shown(tokenizer.Decode(c.ids)), Quantity::Shown(c.decoded));
    streamed.Compare(c, Quantity::Shown(DecodeInSteps(tokenizer, c.ids)),
                     Quantity::Shown(c.decoded));
  }
  bool all_equal = true;
  for (const Quantity* quantity : {&ids, &ids_with_bos, &decoded, &streamed, &resaved}) {
    all_equal = quantity->Report() && all_equal;
  }
  return all_equal;
}

}  // namespace

int RunTokenizerCheck(const std::vector<std::string>& dirs) {
  if (dirs.empty()) {
    std::fprintf(stderr,
                 "check tokenizer: name at least one folder with tokenizer.json and "
                 "cases.jsonl\n");
    return 2;
  }
  bool all_equal = true;
  for (const std::string& dir : dirs) {
    const StatusOr<bool> equal = CheckFolder(dir);
    if (!equal.ok()) {
      std::fprintf(stderr, "check tokenizer: %s\n", Message(equal.status()).c_str());
    }
    all_equal = equal.ok() && *equal && all_equal;
  }
  return all_equal ? 0 : 1;
}

}  // namespace cria::trainer
