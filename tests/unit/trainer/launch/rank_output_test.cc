#include "trainer/launch/rank_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "comm/net/fd.h"

namespace cria::trainer {
namespace {

TEST(LinePrefixerTest, PutsLinesTogether) {
  LinePrefixer prefixer("[rank 3] ");
  EXPECT_EQ(prefixer.Add("half a li"), "");
  EXPECT_EQ(prefixer.Add("ne\nand"), "[rank 3] half a line\n");
  EXPECT_EQ(prefixer.Add(" one\n\ntwo\nthree"), "[rank 3] and one\n[rank 3] \n[rank 3] two\n");
  EXPECT_EQ(prefixer.Finish(), "[rank 3] three\n");
  EXPECT_EQ(prefixer.Finish(), "");
}

TEST(LinePrefixerTest, CutsALineWithoutEnd) {
  LinePrefixer prefixer("> ");
  const std::string megabyte(1 << 20, 'x');
  const std::string out = prefixer.Add(megabyte) + prefixer.Add("end\n");
  EXPECT_EQ(std::count(out.begin(), out.end(), 'x'), 1 << 20);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 17);
  EXPECT_EQ(out.substr(out.size() - 6), "> end\n");
  EXPECT_EQ(prefixer.Finish(), "");
}

TEST(LinePrefixerTest, WithoutAPrefixNoByteIsAdded) {
  LinePrefixer prefixer("");
  const std::string text = "a\n" + std::string(LinePrefixer::kLineBytesMax * 2 + 5, 'x') + "\nb";
  std::string out = prefixer.Add(text);
  out += prefixer.Finish();
  EXPECT_TRUE(out == text);
}

TEST(LastLinesTest, TakesWholeLines) {
  EXPECT_EQ(LastLines("", 2), "");
  EXPECT_EQ(LastLines("a", 2), "a");
  EXPECT_EQ(LastLines("a\nb\nc\n", 2), "b\nc\n");
  EXPECT_EQ(LastLines("a\nb\nc", 2), "b\nc");
  EXPECT_EQ(LastLines("a\nb\n", 5), "a\nb\n");
  EXPECT_EQ(LastLines("\n\n", 1), "\n");
}

TEST(StreamEndTest, KeepsTheEnd) {
  StreamEnd end;
  EXPECT_EQ(end.text(), "");
  std::string all;
  for (int i = 0; i < 5000; ++i) {
    const std::string piece = std::to_string(i) + "\n";
    end.Add(piece);
    all += piece;
    const size_t kept = std::min(all.size(), StreamEnd::kBytesMax);
    ASSERT_TRUE(end.text() == std::string_view(all).substr(all.size() - kept)) << i;
  }
}

// A pipe, its write end behind a queue.
class OutputQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    std::array<int, 2> ends;
    ASSERT_EQ(pipe(ends.data()), 0);
    read_end_ = comm::Fd(ends[0]);
    write_end_ = comm::Fd(ends[1]);
  }
  bool Ready() const {
    pollfd ready = {.fd = write_end_.get(), .events = POLLOUT, .revents = 0};
    return poll(&ready, 1, 0) == 1;
  }

  comm::Fd read_end_, write_end_;
};

TEST_F(OutputQueueTest, WritesAllInOrderAndNeverBlocks) {
  OutputQueue queue(write_end_.get());
  std::string all, got;
  for (int i = 0; i < 100000; ++i) all += std::to_string(i) + "\n";
  queue.Append(all);
  EXPECT_FALSE(queue.full());
  // The pipe is smaller than this: a write that blocks would hang here.
  std::array<char, 5000> bytes;
  while (got.size() < all.size()) {
    while (!queue.empty() && Ready()) queue.WriteSome();
    const ssize_t length = read(read_end_.get(), bytes.data(), bytes.size());
    ASSERT_GT(length, 0);
    got.append(bytes.data(), static_cast<size_t>(length));
  }
  EXPECT_TRUE(got == all);
  EXPECT_TRUE(queue.empty());
}

TEST_F(OutputQueueTest, IsFullAtAMegabyteAndTakesMoreOnceThatIsWritten) {
  OutputQueue queue(write_end_.get());
  queue.Append(std::string(OutputQueue::kBytesMax - 1, 'x'));
  EXPECT_FALSE(queue.full());
  queue.Append("x");
  EXPECT_TRUE(queue.full());
  queue.WriteSome();
  EXPECT_FALSE(queue.full());
}

TEST_F(OutputQueueTest, AReaderThatIsGoneIsNoError) {
  signal(SIGPIPE, SIG_IGN);
  OutputQueue queue(write_end_.get());
  read_end_.Reset();
  queue.Append("lost");
  queue.WriteSome();
  EXPECT_TRUE(queue.empty());
  queue.Append("lost too");
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace cria::trainer
