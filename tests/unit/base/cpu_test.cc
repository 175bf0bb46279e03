#include "base/cpu.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace cria {
namespace {

// ActiveIsa asks once in a process, so each case is a child of its own.
void ExpectIsaUnder(const char* wish, Isa at_most) {
  EXPECT_EXIT(
      {
        ::setenv("CRIA_CPU_ISA", wish, 1);
        ::_exit(ActiveIsa() <= at_most ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(CpuDeathTest, TheVariableLowersTheChoice) {
  ExpectIsaUnder("generic", Isa::kGeneric);
  ExpectIsaUnder("avx2", Isa::kAvx2);
  ExpectIsaUnder("avx512", Isa::kAvx512);
}

TEST(CpuTest, NamesAreStable) {
  EXPECT_STREQ(IsaName(Isa::kGeneric), "generic");
  EXPECT_STREQ(IsaName(Isa::kAvx2), "avx2");
  EXPECT_STREQ(IsaName(Isa::kAvx512), "avx512");
  EXPECT_NE(CpuName().find(" cores, "), std::string::npos);
  EXPECT_TRUE(!CpuHasBf16() || ActiveIsa() == Isa::kAvx512);
}

}  // namespace
}  // namespace cria
