#include "trainer/generate/chat_loop.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "trainer/generate/terminal_text.h"

namespace cria::trainer {

namespace {

// How soon a stop ends the wait for a line.
constexpr int kPollMilliseconds = 50;

}  // namespace

// Appends what there is to input_, waiting until there is something; false at the end of the input
// and when stopped.
bool ChatLoop::ReadMore() {
  while (!Stopped()) {
    pollfd ready = {.fd = options_.in, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPollMilliseconds) <= 0) continue;
    char bytes[4096];
    const ssize_t count = read(options_.in, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count > 0) input_.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }
  return false;
}

// The next line that is not empty, without its line break.
std::optional<std::string> ChatLoop::ReadLine() {
  while (!Stopped()) {
    if (options_.is_terminal) Print("> ");
    while (input_.find('\n') == std::string::npos && ReadMore()) continue;
    if (input_.empty() || Stopped()) break;
    const size_t end = std::min(input_.find('\n'), input_.size());
    std::string line = input_.substr(0, end);
    input_.erase(0, end + 1);
    while (line.ends_with('\r')) line.pop_back();
    if (!StripWhiteSpace(line).empty()) return line;
  }
  if (options_.is_terminal) Print("\n");
  return std::nullopt;
}

void ChatLoop::Print(std::string_view text) {
  if (options_.out == nullptr) return;
  const std::string shown = options_.is_terminal ? TerminalText(text) : std::string(text);
  std::fwrite(shown.data(), 1, shown.size(), options_.out);
  std::fflush(options_.out);
}

StatusOr<Generation> ChatLoop::Reply(const std::vector<int32_t>& ids) {
  const std::vector<Prompt> prompts = {{.ids = ids, .index = 0}};
  CRIA_ASSIGN_OR_RETURN(
      std::vector<Generation> replies,
      generator_->Run(
          prompts, options_.generate,
          {.on_text = [&](size_t, std::string_view text) { Print(text); }, .stop = options_.stop}));
  Print("\n");
  return std::move(replies[0]);
}

Status ChatLoop::Run() {
  std::vector<int32_t> ids = chat_->Start(options_.start);
  while (std::optional<std::string> line = ReadLine()) {
    chat_->AddMessage("user", *line, &ids);
    chat_->StartReply(&ids);
    StatusOr<Generation> reply = Reply(ids);
    if (!reply.ok()) return Annotate(reply.status(), "the conversation");
    const ChatTurn turn = {*std::move(line), ids, *std::move(reply)};
    if (options_.on_turn) options_.on_turn(turn);
    chat_->EndReply(turn.reply.ids, &ids);
    if (options_.is_terminal && Stopped()) *options_.stop = 0;
  }
  return OkStatus();
}

}  // namespace cria::trainer
