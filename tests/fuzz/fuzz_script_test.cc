// tools/fuzz.sh's own errors. What it runs needs clang and minutes: it is no test.

#include <gtest/gtest.h>

#include "tests/support/process.h"

namespace cria {
namespace {

constexpr char kScript[] = "tools/fuzz.sh";

TEST(FuzzScriptTest, HelpSaysHow) {
  const Ended ended = RunProcess({kScript, "--help"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("tools/fuzz.sh TARGET|all [SECONDS] [FOLDER]"), std::string::npos);
  EXPECT_EQ(ended.err, "");
}

TEST(FuzzScriptTest, WithoutATargetOrWithAnUnknownOneItNamesAll) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{kScript}, std::vector<std::string>{kScript, "safetensor"}}) {
    const Ended ended = RunProcess(args);
    EXPECT_EQ(ended.exit_code, 2);
    for (const char* target : {"all", "safetensors", "gguf", "meta_model", "choices"}) {
      EXPECT_NE(ended.err.find(target), std::string::npos) << target << " not in " << ended.err;
    }
  }
}

TEST(FuzzScriptTest, ADurationIsANumberOfSeconds) {
  for (const char* seconds : {"0", "-5", "ten", "1.5"}) {
    const Ended ended = RunProcess({kScript, "safetensors", seconds});
    EXPECT_EQ(ended.exit_code, 2) << seconds;
    EXPECT_NE(ended.err.find(seconds), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace cria
