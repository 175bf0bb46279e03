#include "trainer/bench/peer_process.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"

namespace cria::trainer {
namespace {

constexpr char kPython[] = "python3";
constexpr double kLongSeconds = 60;

std::string Script(const std::string& name, const std::string& text) {
  const std::string path = JoinPath(testing::TempDir(), name);
  std::ofstream(path) << text;
  return path;
}

// Answers "error ..." to "fail", ends at "die", falls silent at "hang", and echoes all else.
std::string EchoScript() {
  return Script("echo.py",
                "import sys\n"
                "print('ready echo 1', flush=True)\n"
                "for line in sys.stdin:\n"
                "    line = line.rstrip('\\n')\n"
                "    if line == 'die':\n"
                "        print('out of ideas', file=sys.stderr)\n"
                "        sys.exit(3)\n"
                "    if line == 'hang':\n"
                "        sys.stdin.read()\n"
                "    print('error no luck' if line == 'fail' else line, flush=True)\n");
}

TEST(PeerProcessTest, AnswersLineByLine) {
  const auto peer = PeerProcess::Start(kPython, EchoScript(), kLongSeconds);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ((*peer)->greeting(), "echo 1");
  EXPECT_EQ((*peer)->Ask("run a b", kLongSeconds).value(), "run a b");
  EXPECT_EQ((*peer)->Ask(std::string(100000, 'x'), kLongSeconds).value(), std::string(100000, 'x'));
}

TEST(PeerProcessTest, AnErrorIsAnAnswerAndThePeerLives) {
  const auto peer = PeerProcess::Start(kPython, EchoScript(), kLongSeconds);
  ASSERT_TRUE(peer.ok()) << peer.status();
  const auto failed = (*peer)->Ask("fail", kLongSeconds);
  EXPECT_EQ(failed.status().code(), StatusCode::kInternal);
  EXPECT_EQ(Message(failed.status()), "python3 echo.py: \"fail\": no luck");
  EXPECT_TRUE((*peer)->Ask("again", kLongSeconds).ok());
}

TEST(PeerProcessTest, ADeadPeerIsNamedWithItsLastWords) {
  const auto peer = PeerProcess::Start(kPython, EchoScript(), kLongSeconds);
  ASSERT_TRUE(peer.ok()) << peer.status();
  const auto dead = (*peer)->Ask("die", kLongSeconds);
  EXPECT_EQ(dead.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Message(dead.status()), "\"die\": python3 echo.py: it ended; it said: out of ideas");
  EXPECT_EQ((*peer)->Ask("hello", kLongSeconds).status().code(), StatusCode::kUnavailable);
}

TEST(PeerProcessTest, ADeadlineEndsAPeerThatIsSilent) {
  const auto peer = PeerProcess::Start(kPython, EchoScript(), kLongSeconds);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ((*peer)->Ask("hang", 0.05).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*peer)->Ask("hello", kLongSeconds).status().code(), StatusCode::kUnavailable);
}

TEST(PeerProcessTest, AMissingPackageIsOneLine) {
  const std::string script = Script("lacking.py", "print('error no torch: ask pip')\n");
  const auto peer = PeerProcess::Start(kPython, script, kLongSeconds);
  EXPECT_EQ(peer.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(peer.status()), "python3 lacking.py: no torch: ask pip");
}

TEST(PeerProcessTest, AMissingInterpreterIsNotFound) {
  const auto peer = PeerProcess::Start("/nowhere/python", EchoScript(), kLongSeconds);
  EXPECT_EQ(peer.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(peer.status()), "run /nowhere/python: No such file or directory");
}

TEST(PeerProcessTest, ScriptsAreFoundInTheRunfiles) {
  EXPECT_TRUE(FindPeerScript("train_peer.py").ok());
  EXPECT_EQ(FindPeerScript("none.py").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace cria::trainer
