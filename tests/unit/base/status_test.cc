#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>

namespace cria {
namespace {

TEST(StatusTest, ErrorsJoinTheirParts) {
  const Status status = DataLossError("read chunk ", 17, ": got ", 512, " of ", 4096, " bytes");
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(Message(status), "read chunk 17: got 512 of 4096 bytes");
}

TEST(StatusTest, ErrnoBecomesTheCodeThatFits) {
  const std::pair<int, StatusCode> cases[] = {
      {ENOENT, StatusCode::kNotFound},
      {EACCES, StatusCode::kPermissionDenied},
      {EROFS, StatusCode::kPermissionDenied},
      {EEXIST, StatusCode::kAlreadyExists},
      {ENOSPC, StatusCode::kResourceExhausted},
      {EDQUOT, StatusCode::kResourceExhausted},
      {EISDIR, StatusCode::kInvalidArgument},
      {ECONNREFUSED, StatusCode::kUnavailable},
      {ETIMEDOUT, StatusCode::kDeadlineExceeded},
      {EIO, StatusCode::kInternal},
  };
  for (const auto& [error_number, code] : cases) {
    EXPECT_EQ(ErrnoError(error_number, "x").code(), code) << error_number;
  }
  EXPECT_EQ(Message(ErrnoError(ENOSPC, "write f")), "write f: No space left on device");
}

TEST(StatusTest, AnnotateKeepsTheCodeAndLeavesOkAlone) {
  EXPECT_TRUE(Annotate(OkStatus(), "x").ok());
  const Status status = Annotate(NotFoundError("no key"), "load f");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(Message(status), "load f: no key");
}

TEST(StatusTest, ExitCodes) {
  EXPECT_EQ(ExitCode(OkStatus()), 0);
  EXPECT_EQ(ExitCode(InvalidArgumentError("x")), 2);
  EXPECT_EQ(ExitCode(DataLossError("x")), 1);
}

StatusOr<int> Half(int n) {
  if (n % 2 != 0) return InvalidArgumentError(n, " is odd");
  return n / 2;
}

StatusOr<int> Quarter(int n) {
  CRIA_ASSIGN_OR_RETURN(const int half, Half(n));
  CRIA_ASSIGN_OR_RETURN(const int quarter, Half(half));
  CRIA_RETURN_IF_ERROR(quarter > 100 ? OutOfRangeError(quarter) : OkStatus());
  return quarter;
}

TEST(StatusTest, MacrosPassValuesAndErrors) {
  EXPECT_EQ(Quarter(8).value(), 2);
  EXPECT_EQ(Message(Quarter(6).status()), "3 is odd");
  EXPECT_EQ(Quarter(4000).status().code(), StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace cria
