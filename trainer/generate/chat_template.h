// ChatTemplate: the ids of a conversation in Llama 3's format.
//
//   CRIA_ASSIGN_OR_RETURN(const ChatTemplate chat,
//                         ChatTemplate::Create(files.chat_template, tokenizer, files.bos_id,
//                         path));
//   std::vector<int32_t> ids = chat.Start({.system = "Be brief.", .date =
//   chat.DefaultDate(today)}); chat.AddMessage("user", "Hello", &ids); chat.StartReply(&ids); //
//   generate until eot_id() chat.EndReply(reply.ids, &ids);            // and AddMessage again
//
//   <|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>
//   <|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>
//   <|start_header_id|>assistant<|end_header_id|>\n\n
//
// A model brings its template as a Jinja program. It is not run: it is recognised, by the header
// tokens in its text, as one of the two of Llama 3's family, and that one is applied:
//   3       messages as above; a system message only where one is given
//   3.1 on  begins with a system message that says "Cutting Knowledge Date: ..." and "Today Date:
//           ...", both read from the template's text, before what the user gives as system message
// Contents are stripped of white space at both ends where the template says so. Tools are not
// supported. A fine-tune that puts more into its template (a system message of its own) is not
// recognised as different.
//
// Contents are encoded as plain text: "<|eot_id|>" typed by a user is eight characters and no end
// of a turn. (transformers' apply_chat_template makes it one.)
//
// A value type: Thread-compatible.

#ifndef CRIA_TRAINER_GENERATE_CHAT_TEMPLATE_H_
#define CRIA_TRAINER_GENERATE_CHAT_TEMPLATE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

struct ChatStart {
  std::string system = {};  // empty: none
  std::string date = {};    // "26 Jul 2024"; for templates that say the day
};

class ChatTemplate {
 public:
  // `jinja` is the model's template. InvalidArgument, beginning with `where`, that says what is
  // missing: a template, one of Llama 3's family, its header tokens as special tokens.
  static StatusOr<ChatTemplate> Create(std::string_view jinja, const Tokenizer& tokenizer,
                                       std::optional<int32_t> bos_id, const std::string& where);

  // The day that the template says when nobody gives one: `today` where it asks for the date,
  // else the one that stands in it; empty when it says none.
  std::string DefaultDate(const std::string& today) const;

  // The beginning of a conversation.
  std::vector<int32_t> Start(const ChatStart& start) const;
  void AddMessage(std::string_view role, std::string_view content, std::vector<int32_t>* ids) const;
  // The header of the assistant's message.
  void StartReply(std::vector<int32_t>* ids) const;
  // The assistant's message as it was generated, ended as the template ends it.
  void EndReply(std::span<const int32_t> reply, std::vector<int32_t>* ids) const;

  // The token that ends a message.
  int32_t eot_id() const { return eot_id_; }

 private:
  explicit ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void AddHeader(std::string_view role, std::vector<int32_t>* ids) const;
  void AddBody(std::string_view text, std::vector<int32_t>* ids) const;
  std::string_view Body(std::string_view content) const;

  Tokenizer tokenizer_;
  std::optional<int32_t> bos_id_;  // where the template begins with it
  int32_t start_header_id_ = 0, end_header_id_ = 0, eot_id_ = 0;
  bool strips_ = false;
  // Llama 3.1 on.
  bool says_dates_ = false;
  bool asks_for_today_ = false;
  std::string cutting_date_, template_date_;
};

// `text` without white space at both ends, as Python's strip().
std::string_view StripWhiteSpace(std::string_view text);

// "26 Jul 2024", in the machine's time zone.
std::string DayOf(double unix_seconds);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_GENERATE_CHAT_TEMPLATE_H_
