#include "base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace cria {
namespace {

// What was written to a plain file so far.
std::string Written(std::FILE* file) {
  std::fflush(file);
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  const size_t got = std::fread(text.data(), 1, text.size(), file);
  text.resize(got);
  return text;
}

TEST(ProgressTest, WritesALineEveryTenSecondsOffATerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  FakeClock clock;
  Progress progress(file, "prepare", 2048, "B", &clock);
  progress.Update(1);
  clock.Advance(9.9);
  progress.Update(512);
  clock.Advance(0.1);
  progress.Update(1024, "7 documents");
  progress.Update(1030);
  clock.Advance(10);
  progress.Update(2048);
  progress.Finish();
  progress.Finish();
  EXPECT_EQ(Written(file),
            "prepare  50%  1.0 KiB of 2.0 KiB  102 B/s  10s left  7 documents\n"
            "prepare 100%  2.0 KiB of 2.0 KiB  102 B/s  0.0s left\n"
            "prepare 100%  2.0 KiB of 2.0 KiB  102 B/s  in 20s\n");
  std::fclose(file);
}

TEST(ProgressTest, ShowsNoTimeLeftWhenTheTotalIsUnknown) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  FakeClock clock;
  Progress progress(file, "read", 0, "docs", &clock);
  progress.Finish();
  EXPECT_EQ(Written(file), "read  0 docs  0 docs/s  in 0.0s\n");
  std::fclose(file);
}

TEST(ProgressTest, DrawsABarOnATerminal) {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) {
    GTEST_SKIP() << "needs a pseudo-terminal (/dev/pts mounted)";
  }
  std::FILE* terminal = std::fopen(::ptsname(master), "r+");
  ASSERT_NE(terminal, nullptr);
  FakeClock clock;
  {
    Progress progress(terminal, "train", 100, "steps", &clock);
    clock.Advance(1);
    progress.Update(50, std::string(200, 'x'));
    progress.Update(51);  // too soon to draw again
  }
  std::fflush(terminal);
  std::string text;
  while (text.find('\n') == std::string::npos) {
    char buffer[1000];
    const ssize_t got = ::read(master, buffer, sizeof(buffer));
    ASSERT_GT(got, 0);
    text.append(buffer, static_cast<size_t>(got));
  }
  EXPECT_EQ(text.rfind("\r\x1b[Ktrain [===========>          ]  50%  50 steps of 100 steps  "
                       "50 steps/s  1.0s le",
                       0),
            0u)
      << text;
  EXPECT_EQ(text.find("51"), std::string::npos);
  // 79 of 80 columns, then "\r\n": a line must not wrap.
  EXPECT_EQ(text.size(), std::string("\r\x1b[K").size() + 79 + 2);
  std::fclose(terminal);
  ::close(master);
}

}  // namespace
}  // namespace cria
