// Every command: help, and what it says to a flag it does not know.

#include <gtest/gtest.h>

#include "base/str.h"
#include "tests/support/process.h"

namespace cria {
namespace {

TEST(CommandsTest, HelpIsExitZeroAndAnUnknownFlagIsExitTwo) {
  const std::vector<std::vector<std::string>> commands = {{"trainer/train"},
                                                          {"trainer/data/data"},
                                                          {"trainer/data/data", "prepare"},
                                                          {"trainer/data/data", "audit"},
                                                          {"trainer/data/data", "inspect"},
                                                          {"trainer/tokenizer/tokenize"},
                                                          {"trainer/generate/generate"},
                                                          {"trainer/eval/eval"},
                                                          {"trainer/check/check"},
                                                          {"trainer/check/check", "golden"},
                                                          {"trainer/check/check", "tokenizer"},
                                                          {"trainer/bench/bench"}};
  for (const std::vector<std::string>& command : commands) {
    SCOPED_TRACE(command.back());
    std::vector<std::string> help = command;
    help.push_back("--help");
    const Ended helped = RunProcess(help);
    EXPECT_EQ(helped.exit_code, 0) << helped.err;
    EXPECT_FALSE(helped.out.empty());
    EXPECT_EQ(helped.err, "");
    std::vector<std::string> unknown = command;
    unknown.push_back("--no-such-flag");
    const Ended refused = RunProcess(unknown);
    EXPECT_EQ(refused.exit_code, 2) << refused.out << refused.err;
    EXPECT_FALSE(refused.err.empty());
    EXPECT_EQ(refused.out, "");
  }
}

}  // namespace
}  // namespace cria
