// base/status.h: messages keep their values, the macros leave early, exit codes follow the habit.

#include "base/status.h"

#include <cerrno>
#include <memory>

#include "gtest/gtest.h"

namespace cria {
namespace {

StatusOr<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return InvalidArgumentError("halve ", value, ": it is odd");
  return std::make_unique<int>(value / 2);
}

StatusOr<int> Quarter(int value) {
  CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<int> half, Half(value));
  CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<int> quarter, Half(*half));
  return *quarter;
}

TEST(StatusTest, AssignOrReturnPassesValuesAndErrorsOn) {
  EXPECT_EQ(Quarter(12).value(), 3);
  const StatusOr<int> odd = Quarter(6);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(Message(odd.status()), "halve 3: it is odd");
}

TEST(StatusTest, ErrnoKeepsTheObjectAndTheReason) {
  const Status status = ErrnoError(ENOSPC, "write ckpt/step_5/model.safetensors");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(status), "write ckpt/step_5/model.safetensors: No space left on device");
}

TEST(StatusTest, AnnotatePutsTheContextFirst) {
  EXPECT_EQ(Message(Annotate(NotFoundError("no b"), "open a")), "open a: no b");
  EXPECT_TRUE(Annotate(OkStatus(), "open a").ok());
}

TEST(StatusTest, ExitCodeIsTwoForWhatTheUserWrote) {
  EXPECT_EQ(ExitCode(OkStatus()), 0);
  EXPECT_EQ(ExitCode(InvalidArgumentError("x")), 2);
  EXPECT_EQ(ExitCode(DataLossError("x")), 1);
}

TEST(StrTest, PrintsNumbersSoThatTheyReadBackEqual) {
  EXPECT_EQ(StrCat("a", 1, ' ', 0.1, " ", -3L, true), "a1 0.1 -3true");
}

}  // namespace
}  // namespace cria
