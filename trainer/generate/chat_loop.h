// ChatLoop: a conversation, a line of input a message.
//
//   ChatLoop loop(&chat, &generator, {.generate = options, .in = STDIN_FILENO, .out = stdout});
//   CRIA_RETURN_IF_ERROR(loop.Run());           // until the input ends
//
// The generator finds the turns before a message in its cache, so a turn runs its own tokens only.
// Replies stay in the conversation as the ids that were generated.
// Single-threaded but for `stop`. What it is given outlives it.

#ifndef CRIA_TRAINER_GENERATE_CHAT_LOOP_H_
#define CRIA_TRAINER_GENERATE_CHAT_LOOP_H_

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "trainer/generate/chat_template.h"
#include "trainer/generate/generator.h"

namespace cria::trainer {

struct ChatTurn {
  std::string message;
  std::vector<int32_t> prompt_ids;  // the whole conversation so far
  Generation reply;
};

struct ChatLoopOptions {
  ChatStart start = {};
  GenerateOptions generate = {};
  bool is_terminal = false;  // show a prompt sign; keep control characters from the terminal
  int in = -1;               // a descriptor to read from
  std::FILE* out = nullptr;  // null: replies are not printed
  // Set by another thread: ends a reply; on a terminal the conversation goes on, else it ends. Ends
  // a wait for a line, and the conversation.
  std::atomic<int>* stop = nullptr;
  std::function<void(const ChatTurn&)> on_turn = nullptr;
};

class ChatLoop {
 public:
  ChatLoop(const ChatTemplate* chat, Generator* generator, const ChatLoopOptions& options)
      : chat_(chat), generator_(generator), options_(options) {}

  // Until the input ends or is interrupted. InvalidArgument when the conversation has grown longer
  // than a sequence may be (with both numbers); the generator's errors.
  Status Run();

 private:
  bool ReadMore();
  std::optional<std::string> ReadLine();
  StatusOr<Generation> Reply(const std::vector<int32_t>& ids);
  void Print(std::string_view text);
  bool Stopped() const { return options_.stop != nullptr && *options_.stop != 0; }

  const ChatTemplate* const chat_;
  Generator* const generator_;
  const ChatLoopOptions options_;
  std::string input_;  // read, but not yet taken as a line
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_GENERATE_CHAT_LOOP_H_
