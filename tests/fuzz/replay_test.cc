// A target's seeds, what broke it once, and thousands of damaged copies: no crash, no hang, and no
// more memory than the input justifies. In the default suite; the long search is tools/fuzz.sh.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_count.h"
#include "tests/fuzz/mutate.h"

namespace cria::fuzz {
namespace {

constexpr int64_t kInputs = 4000;

// The input's start, readable, for a failure's message.
std::string Shown(const std::string& input) {
  std::string out = StrCat(input.size(), " bytes: ");
  for (const char c : input.substr(0, 400)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : StrFormat("\\x%02x", byte);
  }
  return out;
}

// What is being read, for the signal handler.
const std::string* current = nullptr;
char crash_path[4096];

// Keeps the input that ends the process, then lets it end.
void KeepInput(int signal_number) {
  const int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd >= 0 && current != nullptr) {
    [[maybe_unused]] const ssize_t written = write(fd, current->data(), current->size());
    constexpr char kText[] = "the input that ended the test is in ";
    [[maybe_unused]] ssize_t said = write(STDERR_FILENO, kText, sizeof(kText) - 1);
    said = write(STDERR_FILENO, crash_path, strnlen(crash_path, sizeof(crash_path)));
    said = write(STDERR_FILENO, "\n", 1);
  }
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

void KeepInputOfACrash() {
  const char* folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  std::snprintf(crash_path, sizeof(crash_path), "%s/crash_%s", folder != nullptr ? folder : "/tmp",
                TheTarget().name);
  for (const int signal_number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    std::signal(signal_number, KeepInput);
  }
}

Status ReadBounded(const std::string& input) {
  const Target& target = TheTarget();
  // Tables that the first input makes are the program's, not the input's.
  static const Status first = (KeepInputOfACrash(), target.read(target.seeds()[0]));
  (void)first;
  current = &input;
  ResetPeak();
  const Status status = target.read(input);
  const size_t peak = PeakBytes();
  current = nullptr;
  const size_t limit = target.memory_factor * input.size() + target.memory_base;
  EXPECT_LE(peak, limit) << "memory held for " << Shown(input);
  return status;
}

TEST(ReplayTest, AcceptsEverySeed) {
  const std::vector<std::string> seeds = TheTarget().seeds();
  ASSERT_FALSE(seeds.empty());
  for (const std::string& seed : seeds) {
    const Status status = ReadBounded(seed);
    EXPECT_TRUE(status.ok()) << status << "\n" << Shown(seed);
  }
}

TEST(ReplayTest, SurvivesWhatBrokeItOnce) {
  if (TheTarget().regressions == nullptr) GTEST_SKIP() << "nothing has broken it";
  for (const std::string& input : TheTarget().regressions()) {
    SCOPED_TRACE(Shown(input));
    (void)ReadBounded(input);
  }
}

TEST(ReplayTest, SurvivesDamagedCopies) {
  const std::vector<std::string> seeds = TheTarget().seeds();
  int64_t num_inputs = 0, num_refused = 0;
  for (size_t i = 0; i < seeds.size(); ++i) {
    const int64_t count = std::max<int64_t>(kInputs / static_cast<int64_t>(seeds.size()), 200);
    ForEachMutation(seeds[i], count, i, [&](const std::string& input) {
      ++num_inputs;
      num_refused += !ReadBounded(input).ok();
    });
  }
  std::printf("%s: %lld inputs, %lld refused\n", TheTarget().name,
              static_cast<long long>(num_inputs), static_cast<long long>(num_refused));
  EXPECT_GE(num_inputs, 1000);
  // Most damage must show; a reader that accepts all of it reads nothing.
  EXPECT_GT(num_refused, num_inputs / 10);
}

TEST(MemoryCountTest, SeesAllocationsAndRefusedOnes) {
  if (!Counts()) GTEST_SKIP() << "a sanitizer has its own allocator";
  ResetPeak();
  { std::vector<char> block(3 << 20, 'x'); }
  EXPECT_GE(PeakBytes(), size_t{3} << 20);
  EXPECT_LT(PeakBytes(), size_t{4} << 20);
  ResetPeak();
  EXPECT_LT(PeakBytes(), size_t{1} << 20);
}

}  // namespace
}  // namespace cria::fuzz
