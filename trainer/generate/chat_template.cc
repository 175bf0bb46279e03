#include "trainer/generate/chat_template.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "trainer/tokenizer/utf8.h"

namespace cria::trainer {
namespace {

constexpr std::string_view kStartHeader = "<|start_header_id|>";
constexpr std::string_view kEndHeader = "<|end_header_id|>";
constexpr std::string_view kEot = "<|eot_id|>";
constexpr std::string_view kCutting = "Cutting Knowledge Date: ";
constexpr std::string_view kToday = "Today Date: ";

// What str.isspace() holds for.
bool IsPythonSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

// The length of the white space that is the first character of `text`; 0 when it is none.
size_t SpaceLength(std::string_view text) {
  if (text.empty()) return 0;
  const int length = Utf8Length(text.data(), text.data() + text.size());
  if (length == 0 || !IsPythonSpace(DecodeUtf8(text.data(), length))) return 0;
  return static_cast<size_t>(length);
}

// The part of `text` behind `begin`, up to the first of `ends`; empty where there is none.
std::string Between(std::string_view text, std::string_view begin, std::string_view ends) {
  const size_t at = text.find(begin);
  if (at == text.npos) return {};
  const std::string_view rest = text.substr(at + begin.size());
  return std::string(rest.substr(0, std::min(rest.find_first_of(ends), rest.size())));
}

// The string that a template gives a variable of that name: {%- set name = "value" %}.
std::string StringOfVariable(std::string_view jinja, const std::string& name) {
  const std::string with_double = Between(jinja, name + " = \"", "\"");
  return with_double.empty() ? Between(jinja, name + " = '", "'") : with_double;
}

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace

std::string_view StripWhiteSpace(std::string_view text) {
  while (const size_t length = SpaceLength(text)) text.remove_prefix(length);
  while (!text.empty()) {
    // The last character: back over at most three continuation bytes.
    size_t length = 1;
    while (length < std::min<size_t>(4, text.size()) &&
           (static_cast<uint8_t>(text[text.size() - length]) & 0xC0) == 0x80) {
      ++length;
    }
    if (SpaceLength(text.substr(text.size() - length)) != length) break;
    text.remove_suffix(length);
  }
  return text;
}

std::string DayOf(double unix_seconds) {
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm day = {};
  localtime_r(&seconds, &day);
  return StrFormat("%02d %s %d", day.tm_mday, kMonths[static_cast<size_t>(day.tm_mon)],
                   day.tm_year + 1900);
}

StatusOr<ChatTemplate> ChatTemplate::Create(std::string_view jinja, const Tokenizer& tokenizer,
                                            std::optional<int32_t> bos_id,
                                            const std::string& where) {
  if (jinja.empty()) {
    return InvalidArgumentError(where,
                                ": the model has no chat template; it continues texts: leave "
                                "--chat out");
  }
  ChatTemplate chat(tokenizer);
  for (const auto& [content, id] :
       {std::pair(kStartHeader, &chat.start_header_id_),
        std::pair(kEndHeader, &chat.end_header_id_), std::pair(kEot, &chat.eot_id_)}) {
    if (!Contains(jinja, content)) {
      return InvalidArgumentError(
          where, ": the chat template is not of Llama 3's family: it has no ", content);
    }
    const std::optional<int32_t> found = tokenizer.AddedTokenId(content);
    if (!found || !tokenizer.IsSpecial(*found)) {
      return InvalidArgumentError(where, ": the tokenizer has no special token ", content,
                                  ", which the chat template needs");
    }
    *id = *found;
  }
  if (!Contains(jinja, "<|end_header_id|>\\n\\n") && !Contains(jinja, "<|end_header_id|>\n\n")) {
    return InvalidArgumentError(where, ": the chat template is not of Llama 3's family: no empty ",
                                "line follows ", kEndHeader);
  }
  if (Contains(jinja, "bos_token") || Contains(jinja, kBeginOfText)) {
    chat.bos_id_ = bos_id ? bos_id : tokenizer.bos_id();
  }
  chat.strips_ = Contains(jinja, "trim");
  chat.says_dates_ = Contains(jinja, kCutting) && Contains(jinja, kToday);
  if (chat.says_dates_) {
    chat.cutting_date_ = Between(jinja, kCutting, "\\\n\"'");
    chat.template_date_ = StringOfVariable(jinja, "date_string");
    chat.asks_for_today_ = Contains(jinja, "strftime_now");
  }
  return chat;
}

std::string ChatTemplate::DefaultDate(const std::string& today) const {
  if (!says_dates_) return {};
  return asks_for_today_ || template_date_.empty() ? today : template_date_;
}

std::vector<int32_t> ChatTemplate::Start(const ChatStart& start) const {
  std::vector<int32_t> ids;
  if (bos_id_) ids.push_back(*bos_id_);
  if (!says_dates_) {
    if (!start.system.empty()) AddMessage("system", start.system, &ids);
    return ids;
  }
  AddHeader("system", &ids);
  AddBody(StrCat(kCutting, cutting_date_, "\n", kToday, start.date, "\n\n", Body(start.system)),
          &ids);
  return ids;
}

void ChatTemplate::AddMessage(std::string_view role, std::string_view content,
                              std::vector<int32_t>* ids) const {
  AddHeader(role, ids);
  AddBody(Body(content), ids);
}

void ChatTemplate::StartReply(std::vector<int32_t>* ids) const {
  AddHeader("assistant", ids);
  tokenizer_.Encode("\n\n", ids);
}

void ChatTemplate::EndReply(std::span<const int32_t> reply, std::vector<int32_t>* ids) const {
  ids->insert(ids->end(), reply.begin(), reply.end());
  if (reply.empty() || reply.back() != eot_id_) ids->push_back(eot_id_);
}

std::string_view ChatTemplate::Body(std::string_view content) const {
  return strips_ ? StripWhiteSpace(content) : content;
}

void ChatTemplate::AddHeader(std::string_view role, std::vector<int32_t>* ids) const {
  ids->push_back(start_header_id_);
  tokenizer_.Encode(role, ids);
  ids->push_back(end_header_id_);
}

// The empty line behind the header and the text are one text for the tokenizer.
void ChatTemplate::AddBody(std::string_view text, std::vector<int32_t>* ids) const {
  tokenizer_.Encode(StrCat("\n\n", text), ids);
  ids->push_back(eot_id_);
}

}  // namespace cria::trainer
