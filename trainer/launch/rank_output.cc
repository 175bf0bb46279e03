#include "trainer/launch/rank_output.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace cria::trainer {

std::string LinePrefixer::Add(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const size_t end = newline == std::string_view::npos ? bytes.size() : newline + 1;
    const size_t taken = std::min(end, kLineBytesMax - line_.size());
    line_ += bytes.substr(0, taken);
    bytes.remove_prefix(taken);
    if (line_.back() == '\n' || line_.size() == kLineBytesMax) out += Finish();
  }
  return out;
}

std::string LinePrefixer::Finish() {
  if (line_.empty()) return "";
  std::string out = prefix_ + line_;
  if (!prefix_.empty() && out.back() != '\n') out += '\n';
  line_.clear();
  return out;
}

std::string LastLines(std::string_view text, int lines) {
  size_t start = text.size();
  if (start > 0 && text[start - 1] == '\n') --start;  // ends the last line, begins none
  while (start > 0) {
    if (text[start - 1] == '\n' && --lines == 0) break;
    --start;
  }
  return std::string(text.substr(start));
}

void StreamEnd::Add(std::string_view bytes) {
  text_ += bytes;
  // Cut rarely, so that many short pieces cost little.
  if (text_.size() > 4 * kBytesMax) text_.erase(0, text_.size() - kBytesMax);
}

std::string_view StreamEnd::text() const {
  const std::string_view all = text_;
  return all.substr(all.size() - std::min(all.size(), kBytesMax));
}

void OutputQueue::Append(std::string_view bytes) {
  if (!broken_) bytes_ += bytes;
}

void OutputQueue::WriteSome() {
  const size_t bytes = std::min<size_t>(bytes_.size() - written_, PIPE_BUF);
  if (bytes == 0) return;
  const ssize_t written = write(fd_, bytes_.data() + written_, bytes);
  if (written < 0 && errno != EAGAIN && errno != EINTR) {
    broken_ = true;
    bytes_.clear();
    written_ = 0;
  }
  if (written <= 0) return;
  written_ += static_cast<size_t>(written);
  if (written_ == bytes_.size() || written_ > kBytesMax) {
    bytes_.erase(0, written_);
    written_ = 0;
  }
}

}  // namespace cria::trainer
