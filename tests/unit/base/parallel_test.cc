#include "base/parallel.h"

#include <gtest/gtest.h>

#include <vector>

namespace cria {
namespace {

class ParallelTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { SetNumThreads(GetParam()); }
};

TEST_P(ParallelTest, RunsEachItemOnce) {
  for (const int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<int> runs(static_cast<size_t>(n));
    ParallelFor(n, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(n), 1));
  }
}

TEST_P(ParallelTest, NestedLoopsRunInPlace) {
  std::vector<int> runs(12);
  ParallelFor(3, [&](int64_t i) {
    ParallelFor(4, [&](int64_t j) { ++runs[static_cast<size_t>(4 * i + j)]; });
  });
  EXPECT_EQ(runs, std::vector<int>(12, 1));
}

TEST_P(ParallelTest, ThreadIndicesStayBelowTheNumberOfThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "under ThreadSanitizer loops run on one thread";
#endif
  EXPECT_EQ(NumThreads(), GetParam());
  std::vector<int> indices(100);
  ParallelFor(100, [&](int64_t i) { indices[static_cast<size_t>(i)] = ThreadIndex(); });
  for (const int index : indices) {
    EXPECT_GE(index, 0);
    EXPECT_LT(index, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelTest, testing::Values(1, 2, 3, 8));

}  // namespace
}  // namespace cria
