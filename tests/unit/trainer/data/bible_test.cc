// trainer/data/bible.h: labels go, chapters stay; a missing, broken or hanging program is an error.

#include "trainer/data/bible.h"

#include <sys/stat.h>

#include "base/file.h"
#include "gtest/gtest.h"
#include "tests/unit/trainer/data/test_folder.h"

namespace cria::trainer {
namespace {

std::string WriteProgram(const std::string& name, const std::string& body) {
  const std::string path = JoinPath(MakeTestFolder(name), "program");
  EXPECT_TRUE(WriteFileAtomic(path, "#!/bin/sh\n" + body).ok());
  EXPECT_EQ(chmod(path.c_str(), 0755), 0);
  return path;
}

TEST(BibleTest, AChapterIsADocumentWithoutLabels) {
  const std::vector<std::string> chapters =
      ParseVerses("Ge1:1 In the beginning: so.\nGe1:2 And\nGe2:1 Thus\n1Sm2:1 And Hannah\n")
          .value();
  EXPECT_EQ(chapters,
            (std::vector<std::string>{"In the beginning: so.\nAnd\n", "Thus\n", "And Hannah\n"}));
}

TEST(BibleTest, ALineWithoutALabelIsAnError) {
  for (const char* line : {"no label", "Ge1 1 x", "Ge:1 x", "Ge1:x y", "Ge1:1", "", ":1 x"}) {
    const Status status = ParseVerses(StrCat("Ge1:1 In\n", line, "\n")).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << line;
    EXPECT_NE(Message(status).find("line 2"), std::string::npos) << Message(status);
  }
  EXPECT_EQ(ParseVerses("").status().code(), StatusCode::kDataLoss);
}

TEST(BibleTest, NamesThePackageWhenTheProgramIsMissing) {
  const Status status = ReadBible({.program = "no-such-bible-program"}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(status).find("bible-kjv"), std::string::npos) << Message(status);
}

TEST(BibleTest, AFailingProgramIsAnError) {
  const std::string program = WriteProgram("failing", "echo 'Ge1:1 In'; exit 3\n");
  EXPECT_EQ(ReadBible({.program = program}).status().code(), StatusCode::kDataLoss);
}

TEST(BibleTest, AHangingProgramEndsAtTheDeadline) {
  const std::string program = WriteProgram("hanging", "echo 'Ge1:1 In'; exec cat /dev/zero\n");
  const Status flood = ReadBible({.program = program}).status();
  EXPECT_EQ(flood.code(), StatusCode::kDataLoss);
  // The deadline is over before the first look at the clock.
  const Status late = ReadBible({.program = program, .deadline_s = 0}).status();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
}

TEST(BibleTest, TheWholeTextHasItsKnownShape) {
  const StatusOr<std::vector<std::string>> chapters = ReadBible({});
  if (chapters.status().code() == StatusCode::kFailedPrecondition) {
    GTEST_SKIP() << Message(chapters.status());
  }
  ASSERT_EQ(chapters.value().size(), 1189u);
  size_t num_verses = 0;
  for (const std::string& chapter : *chapters) {
    num_verses += static_cast<size_t>(std::count(chapter.begin(), chapter.end(), '\n'));
  }
  EXPECT_EQ(num_verses, 31102u);
  EXPECT_TRUE((*chapters)[0].starts_with("In the beginning God created the heaven and the earth."));
  EXPECT_TRUE((*chapters)[1188].ends_with("Amen.\n"));
}

}  // namespace
}  // namespace cria::trainer
