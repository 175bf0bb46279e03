#include "base/log.h"

#include <gtest/gtest.h>
#include <regex.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace cria {
namespace {

// The level is read once, at the first line; this runs before any.
const int kLevelSet = ::setenv("CRIA_LOG", "info", 1);

TEST(LogTest, WritesTimeLevelAndPartsToStderr) {
  ASSERT_EQ(kLevelSet, 0);
  testing::internal::CaptureStderr();
  LogInfo("wrote ", 3, " of ", 4.5, " {} %s");
  LogWarning("careful");
  LogError("broken");
  LogDebug("not shown");
  const std::string lines = testing::internal::GetCapturedStderr();
  regex_t pattern;
  ASSERT_EQ(::regcomp(&pattern,
                      "^[0-9:]{8} info wrote 3 of 4.5 \\{\\} %s\n"
                      "[0-9:]{8} warning careful\n"
                      "[0-9:]{8} error broken\n$",
                      REG_EXTENDED),
            0);
  EXPECT_EQ(::regexec(&pattern, lines.c_str(), 0, nullptr, 0), 0) << lines;
  ::regfree(&pattern);
}

TEST(LogTest, LinesOfManyThreadsDoNotMix) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) LogInfo(std::string(50, 'x'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string lines = testing::internal::GetCapturedStderr();
  size_t num_lines = 0;
  for (size_t at = 0; at < lines.size(); ++num_lines) {
    const size_t end = lines.find('\n', at);
    ASSERT_NE(end, std::string::npos);
    EXPECT_EQ(lines.substr(end - 51, 51), " " + std::string(50, 'x'));
    EXPECT_EQ(end - at, 8 + 1 + 4 + 1 + 50u);
    at = end + 1;
  }
  EXPECT_EQ(num_lines, 400u);
}

}  // namespace
}  // namespace cria
