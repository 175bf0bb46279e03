#include "comm/api/error.h"

#include <gtest/gtest.h>

namespace cria::comm {
namespace {

CommError Mismatch() {
  return {.kind = CommErrorKind::kMismatch,
          .group = "dp",
          .rank = 1,
          .world_rank = 3,
          .culprit = 0,
          .culprit_world = 2,
          .operation = "all_reduce",
          .sequence = 42,
          .bytes = 400,
          .culprit_bytes = 800,
          .reason = "it passed 200 elements"};
}

TEST(CommErrorTest, TheMessageNamesRankGroupOperationSequenceAndBothSizes) {
  const Status status = ToStatus(Mismatch());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            "rank 1 of \"dp\" (world 3): all_reduce #42, 400 bytes: mismatch: it passed 200 "
            "elements; culprit: rank 0 (world 2) with 800 bytes");
}

TEST(CommErrorTest, TheFieldsComeBack) {
  const auto error = GetCommError(ToStatus(Mismatch()));
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind, CommErrorKind::kMismatch);
  EXPECT_EQ(error->group, "dp");
  EXPECT_EQ(error->rank, 1);
  EXPECT_EQ(error->world_rank, 3);
  EXPECT_EQ(error->culprit, 0);
  EXPECT_EQ(error->culprit_world, 2);
  EXPECT_EQ(error->operation, "all_reduce");
  EXPECT_EQ(error->sequence, 42u);
  EXPECT_EQ(error->bytes, 400);
  EXPECT_EQ(error->culprit_bytes, 800);
  EXPECT_EQ(error->reason, "it passed 200 elements");
}

TEST(CommErrorTest, AnnotationKeepsTheFields) {
  const Status status = Annotate(ToStatus(Mismatch()), "step 7");
  EXPECT_EQ(Message(status).substr(0, 8), "step 7: ");
  ASSERT_TRUE(GetCommError(status).has_value());
  EXPECT_EQ(GetCommError(status)->culprit, 0);
}

TEST(CommErrorTest, AnotherStatusHasNone) {
  EXPECT_FALSE(GetCommError(OkStatus()).has_value());
  EXPECT_FALSE(GetCommError(UnavailableError("no")).has_value());
}

TEST(CommErrorTest, EachKindHasItsCode) {
  CommError error = Mismatch();
  error.kind = CommErrorKind::kTimeout;
  EXPECT_EQ(ToStatus(error).code(), StatusCode::kDeadlineExceeded);
  error.kind = CommErrorKind::kPeerLost;
  EXPECT_EQ(ToStatus(error).code(), StatusCode::kUnavailable);
  error.kind = CommErrorKind::kAborted;
  EXPECT_EQ(ToStatus(error).code(), StatusCode::kCancelled);
  error.kind = CommErrorKind::kBadArgument;
  EXPECT_EQ(ToStatus(error).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cria::comm
