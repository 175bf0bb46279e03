// The bytes that ranks write, on their way to the launcher's standard error.
//
//   OutputQueue queue(STDERR_FILENO);
//   LinePrefixer prefixer("[rank 3] ");
//   std::string lines = prefixer.Add("half a li");     // ""
//   lines += prefixer.Add("ne\nand more");             // "[rank 3] half a line\n"
//   lines += prefixer.Finish();                        // "[rank 3] and more\n"
//   queue.Append(lines);
//   if (poll says that the descriptor takes bytes) queue.WriteSome();
//
// Single-threaded.

#ifndef CRIA_TRAINER_LAUNCH_RANK_OUTPUT_H_
#define CRIA_TRAINER_LAUNCH_RANK_OUTPUT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace cria::trainer {

// Cuts bytes into lines with a prefix. Without one, the bytes pass as they are, line by line.
class LinePrefixer {
 public:
  // A line beyond this is passed on in pieces, each as a line.
  static constexpr size_t kLineBytesMax = size_t{64} << 10;

  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}

  // What can be passed on now.
  std::string Add(std::string_view bytes);
  // The rest, of a rank that will write no more.
  std::string Finish();

 private:
  const std::string prefix_;
  std::string line_;  // its start, still without an end
};

// The last `lines` lines of a text, with their newlines.
std::string LastLines(std::string_view text, int lines);

// Keeps the end of a stream.
class StreamEnd {
 public:
  static constexpr size_t kBytesMax = size_t{8} << 10;

  void Add(std::string_view bytes);
  // At most kBytesMax of what was added last.
  std::string_view text() const;

 private:
  std::string text_;
};

// Bytes that wait for a descriptor. Never blocks: it writes only when told that the descriptor is
// ready, and no more than the kernel then takes at once. A reader that is gone loses them.
class OutputQueue {
 public:
  // Who fills the queue waits while it is full.
  static constexpr size_t kBytesMax = size_t{1} << 20;

  explicit OutputQueue(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  bool empty() const { return written_ == bytes_.size(); }
  bool full() const { return bytes_.size() - written_ >= kBytesMax; }
  void Append(std::string_view bytes);
  void WriteSome();

 private:
  const int fd_;
  bool broken_ = false;
  std::string bytes_;
  size_t written_ = 0;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LAUNCH_RANK_OUTPUT_H_
