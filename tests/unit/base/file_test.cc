#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace cria {
namespace {

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = JoinPath(testing::TempDir(), StrCat("file_test_", info->name()));
    ASSERT_TRUE(RemoveAll(dir_).ok());
    ASSERT_TRUE(MakeDirs(dir_).ok());
  }
  std::string Path(const std::string& name) const { return JoinPath(dir_, name); }
  std::string Content(const std::string& name) const {
    const StatusOr<std::string> text = ReadFile(Path(name));
    return text.ok() ? *text : StrCat("<", Message(text.status()), ">");
  }
  std::vector<std::string> Names() const { return ListDir(dir_).value(); }

  std::string dir_;
};

TEST_F(FileTest, ReadsBackWhatWasWritten) {
  for (const size_t size : {0, 1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31);
    ASSERT_TRUE(WriteFileAtomic(Path("f"), bytes).ok());
    EXPECT_EQ(Content("f"), bytes) << size;
    EXPECT_EQ(FileSize(Path("f")).value(), size);
    const StatusOr<MappedFile> map = MappedFile::Open(Path("f"));
    ASSERT_TRUE(map.ok());
    EXPECT_EQ(map->bytes(), bytes) << size;
  }
  EXPECT_EQ(Names(), std::vector<std::string>{"f"});
}

TEST_F(FileTest, ReadStopsAtItsLimit) {
  ASSERT_TRUE(WriteFileAtomic(Path("f"), "12345").ok());
  EXPECT_TRUE(ReadFile(Path("f"), 5).ok());
  const Status status = ReadFile(Path("f"), 4).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(status), StrCat("read ", Path("f"), ": more than the limit of 4 bytes"));
  EXPECT_EQ(ReadFile("/dev/zero", 10'000).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(FileTest, MissingFilesAndFoldersAreNamed) {
  const Status status = ReadFile(Path("none")).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(status), StrCat("open ", Path("none"), ": No such file or directory"));
  EXPECT_EQ(MappedFile::Open(Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(dir_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MappedFile::Open(dir_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ListDir(Path("none")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(WriteFileAtomic(Path("none/f"), "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(WriteFileAtomic(dir_, "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteFileAtomic("", "x").code(), StatusCode::kInvalidArgument);
}

// A rename over a device would destroy it; as root nothing else would stop that.
TEST_F(FileTest, RefusesToReplaceADevice) {
  const Status status = WriteFileAtomic("/dev/full", "x");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "write /dev/full: it exists and is not a regular file");
  struct stat info;
  ASSERT_EQ(::stat("/dev/full", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
}

TEST_F(FileTest, NothingIsVisibleBeforeCommit) {
  ASSERT_TRUE(WriteFileAtomic(Path("f"), "old").ok());
  {
    const auto file = AtomicFile::Create(Path("f")).value();
    ASSERT_TRUE(file->Append(std::string(3 << 20, 'n')).ok());
    EXPECT_EQ(Content("f"), "old");
    EXPECT_EQ(Names().size(), 2u);
  }
  EXPECT_EQ(Content("f"), "old");
  EXPECT_EQ(Names(), std::vector<std::string>{"f"});
}

TEST_F(FileTest, WriteAtPatchesWhatWasAppended) {
  const auto file = AtomicFile::Create(Path("f")).value();
  ASSERT_TRUE(file->Append("head----").ok());
  ASSERT_TRUE(file->Append(std::string(2 << 20, 'x')).ok());
  ASSERT_TRUE(file->Append("tail").ok());
  ASSERT_TRUE(file->WriteAt(4, "1234").ok());
  ASSERT_TRUE(file->Append("end").ok());
  EXPECT_EQ(file->size(), 8u + (2 << 20) + 7);
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Content("f"), StrCat("head1234", std::string(2 << 20, 'x'), "tailend"));
}

TEST_F(FileTest, TwoWritersOfOnePathDoNotMix) {
  const auto one = AtomicFile::Create(Path("f")).value();
  const auto two = AtomicFile::Create(Path("f")).value();
  ASSERT_TRUE(one->Append("one").ok());
  ASSERT_TRUE(two->Append("two").ok());
  ASSERT_TRUE(one->Commit().ok());
  EXPECT_EQ(Content("f"), "one");
  ASSERT_TRUE(two->Commit().ok());
  EXPECT_EQ(Content("f"), "two");
}

// Runs `body` in a child process and returns its exit status.
int InChild(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The disk is full after 2 MiB: at every place where the failure may show, the old file stays, the
// temporary one goes, and the error sticks.
TEST_F(FileTest, AFullDiskLeavesTheOldContent) {
  ASSERT_TRUE(WriteFileAtomic(Path("f"), "old").ok());
  const int result = InChild([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2 << 20, 2 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 10;
    const Status whole = WriteFileAtomic(Path("f"), std::string(3 << 20, 'n'));
    if (whole.ok() || Message(whole).find("write ") != 0) return 11;
    const auto file = AtomicFile::Create(Path("f")).value();
    Status status;
    for (int i = 0; i < 300 && status.ok(); ++i) status = file->Append(std::string(10'000, 'n'));
    if (status.ok()) return 12;
    if (file->Append("x") != status) return 13;
    if (file->WriteAt(0, "x") != status) return 14;
    if (file->Commit() != status) return 15;
    return 0;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(Content("f"), "old");
  EXPECT_EQ(Names(), std::vector<std::string>{"f"});
}

// The last bytes, still in the buffer, do not fit: Commit itself must notice.
TEST_F(FileTest, CommitReportsWhatTheBufferCouldNotWrite) {
  ASSERT_TRUE(WriteFileAtomic(Path("f"), "old").ok());
  const int result = InChild([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 10;
    const auto file = AtomicFile::Create(Path("f")).value();
    if (!file->Append(std::string(1001, 'n')).ok()) return 11;
    const Status status = file->Commit();
    return Message(status).find(": took 1000 of 1001 bytes: File too large") != std::string::npos
               ? 0
               : 12;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(Content("f"), "old");
}

// A killed writer leaves the old content; the next write succeeds beside the leftover.
TEST_F(FileTest, AKilledWriterLeavesTheOldContent) {
  ASSERT_TRUE(WriteFileAtomic(Path("f"), "old").ok());
  InChild([&] {
    auto file = AtomicFile::Create(Path("f")).value();
    (void)file->Append(std::string(2 << 20, 'n'));
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(Content("f"), "old");
  EXPECT_EQ(Names().size(), 2u);
  ASSERT_TRUE(WriteFileAtomic(Path("f"), "new").ok());
  EXPECT_EQ(Content("f"), "new");
}

// Takes root's right to write everywhere from this process.
bool DropCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2]{};
  return ::syscall(SYS_capset, &header, none) == 0;
}

TEST_F(FileTest, AReadOnlyFolderIsPermissionDenied) {
  ASSERT_TRUE(WriteFileAtomic(Path("f"), "old").ok());
  ASSERT_EQ(::chmod(dir_.c_str(), 0555), 0);
  const int result = InChild([&] {
    if (!DropCapabilities()) return 10;
    if (WriteFileAtomic(Path("f"), "new").code() != StatusCode::kPermissionDenied) return 11;
    if (MakeDirs(Path("sub")).code() != StatusCode::kPermissionDenied) return 12;
    if (RemoveAll(Path("f")).ok()) return 13;
    return 0;
  });
  ASSERT_EQ(::chmod(dir_.c_str(), 0755), 0);
  EXPECT_EQ(result, 0);
  EXPECT_EQ(Content("f"), "old");
}

TEST_F(FileTest, MapSurvivesMovesAndReplacement) {
  ASSERT_TRUE(WriteFileAtomic(Path("f"), "first").ok());
  MappedFile a = MappedFile::Open(Path("f")).value();
  MappedFile b = std::move(a);
  ASSERT_TRUE(WriteFileAtomic(Path("f"), "second").ok());
  EXPECT_EQ(b.bytes(), "first");
  a = MappedFile::Open(Path("f")).value();
  std::swap(a, b);
  EXPECT_EQ(a.bytes(), "first");
  EXPECT_EQ(b.bytes(), "second");
  EXPECT_EQ(MappedFile().bytes(), "");
}

TEST_F(FileTest, ReadsAPipeToItsEnd) {
  const std::string pipe = Path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string sent(200'000, 'p');
  std::thread writer([&] {
    const int fd = ::open(pipe.c_str(), O_WRONLY);
    for (size_t at = 0; at < sent.size();) {
      const ssize_t n = ::write(fd, sent.data() + at, sent.size() - at);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
    ::close(fd);
  });
  const StatusOr<std::string> got = ReadFile(pipe);
  writer.join();
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, sent);
}

TEST_F(FileTest, FoldersAreMadeListedRenamedRemoved) {
  ASSERT_TRUE(MakeDirs(Path("a/b/c")).ok());
  ASSERT_TRUE(MakeDirs(Path("a/b/c/")).ok());
  EXPECT_TRUE(IsDir(Path("a/b/c")));
  ASSERT_TRUE(WriteFileAtomic(Path("a/2"), "").ok());
  ASSERT_TRUE(WriteFileAtomic(Path("a/10"), "").ok());
  EXPECT_EQ(ListDir(Path("a")).value(), (std::vector<std::string>{"10", "2", "b"}));
  EXPECT_FALSE(MakeDirs(Path("a/2")).ok());
  EXPECT_EQ(MakeDirs(Path("a/2/x")).code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(Rename(Path("a"), Path("z")).ok());
  EXPECT_FALSE(Exists(Path("a")));
  EXPECT_TRUE(Exists(Path("z/2")));
  EXPECT_EQ(Rename(Path("a"), Path("y")).code(), StatusCode::kNotFound);
  EXPECT_TRUE(RemoveAll(Path("none/none")).ok());
  ASSERT_TRUE(RemoveAll(Path("z")).ok());
  ASSERT_TRUE(RemoveAll(Path("z")).ok());
  EXPECT_FALSE(Exists(Path("z")));
}

TEST(PathTest, PartsFollowTheShell) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("a", ""), "a");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
  EXPECT_EQ(DirName("x/y/z"), "x/y");
  EXPECT_EQ(DirName("x/y/z/"), "x/y");
  EXPECT_EQ(DirName("x//y"), "x");
  EXPECT_EQ(DirName("z"), ".");
  EXPECT_EQ(DirName("/z"), "/");
  EXPECT_EQ(DirName("/"), "/");
  EXPECT_EQ(BaseName("x/y/z"), "z");
  EXPECT_EQ(BaseName("x/y/z//"), "z");
  EXPECT_EQ(BaseName("/"), "/");
}

}  // namespace
}  // namespace cria
